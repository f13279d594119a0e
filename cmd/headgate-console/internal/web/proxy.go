package web

import (
	"errors"
	"net/http"
)

// Errors of actions that are impossible where a proxy authenticates users.
var (
	errStranger   = errors.New("the proxy names no user who may log in")
	errSignOut    = errors.New("the proxy signs people in and out")
	errNoPassword = errors.New("the proxy asks for passwords")
)

// proxyFailure returns an explanation of the errors above. ok is false for others.
func proxyFailure(err error) (f failure, ok bool) {
	switch {
	case errors.Is(err, errStranger):
		return failure{Status: http.StatusForbidden, Title: "You cannot sign in",
			Text: "The proxy in front of the console says who you are, " +
				"and the console has no such user, or has disabled the user. An administrator can change that."}, true
	case errors.Is(err, errSignOut):
		return failure{Status: http.StatusConflict, Title: "Sign out at the proxy",
			Text: "The proxy in front of the console has signed you in, " +
				"and there is no session to end here. Sign out where you have signed in, or close the browser."}, true
	case errors.Is(err, errNoPassword):
		return failure{Status: http.StatusConflict, Title: "No password is asked here",
			Text: "The proxy in front of the console has signed you in. " +
				"Change your password where you sign in."}, true
	}

	return failure{}, false
}
