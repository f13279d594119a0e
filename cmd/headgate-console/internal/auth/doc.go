// Package auth hashes passwords, makes tokens and limits failed log-ins. Its only
// state is the counts of attempts.
package auth
