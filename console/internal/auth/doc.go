// Package auth knows passwords, tokens and how often somebody may try to log in.
// It keeps nothing but the counts of attempts.
package auth
