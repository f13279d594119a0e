// This file counts by credentials.

package keyfuncs

import (
	"encoding/base64"
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/core"
)

// APIKey counts by a digest of the credential in the header, such as "X-Api-Key".
// Space around the credential does not matter. In "Authorization" and
// "Proxy-Authorization" the scheme and its spelling do not matter either, so
// "Bearer k", "bearer  k" and "k" are one caller. A credential that is missing,
// empty or sent in several lines has the key "".
//
// Check the credential before the limiter runs, or callers can make up as many
// as they like. Where a server accepts several spellings of one credential,
// such as a UUID in both cases, count by [UserID].
func APIKey(header string) core.KeyFunc {
	name := textproto.CanonicalMIMEHeaderKey(header)
	if name != "Authorization" && name != "Proxy-Authorization" {
		return func(r core.Request) (string, bool) { return conceal(singleLine(r, name)), true }
	}
	return func(r core.Request) (string, bool) {
		value := singleLine(r, name)
		if _, credential := cutScheme(value); credential != "" {
			value = credential
		}
		return conceal(value), true
	}
}

// BearerToken returns a digest of the token in "Authorization: Bearer token". The
// case of the scheme and the space around the token do not matter. Without a
// bearer token the key is "". As with [APIKey], check the token before the
// limiter runs.
func BearerToken(r core.Request) (key string, ok bool) {
	scheme, token := cutScheme(singleLine(r, "Authorization"))
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return conceal(token), true
}

// BasicUser returns a digest of the user name in "Authorization: Basic …",
// whatever the spelling of its base64. The password does not matter: guesses at one
// account count together. Use it to slow them down, next to a limit by address,
// and expect that any client can use up the limit of any name. Without a name
// the key is "".
func BasicUser(r core.Request) (key string, ok bool) {
	scheme, text := cutScheme(singleLine(r, "Authorization"))
	if !strings.EqualFold(scheme, "Basic") {
		return "", true
	}

	// Some handlers accept base64 without padding, so a name is one caller with and without it.
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return "", true
	}

	user, _, found := strings.Cut(string(plain), ":")
	if !found {
		return "", true
	}
	return conceal(user), true
}

// cutScheme cuts "Bearer k" in two. The credential is "" if there is only one
// word.
func cutScheme(value string) (scheme, credential string) {
	i := strings.IndexAny(value, " \t")
	if i < 0 {
		return value, ""
	}
	return value[:i], trimSpace(value[i:])
}
