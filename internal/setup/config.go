// Package setup reads what the New of an adapter was given. [ConfigOf] returns it.
package setup

import (
	"errors"

	"github.com/headgate/headgate/limiter"
)

var errConfigs = errors.New("more than one Config was given, and all but the first are ignored")

// ConfigOf returns the first of the Configs that the New of an adapter was given, or the zero
// Config without one. Its error joins the mistakes: why l cannot decide about requests, and
// that there is a second Config.
func ConfigOf[T any](l *limiter.Limiter, list []T) (T, error) {
	var config T
	if len(list) == 0 {
		return config, l.CheckRequests()
	}
	if len(list) > 1 {
		return list[0], errors.Join(l.CheckRequests(), errConfigs)
	}
	return list[0], l.CheckRequests()
}
