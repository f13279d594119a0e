// Package auth hashes passwords, makes tokens and limits failed log-ins. Its only state is the
// counts of attempts. [Passwords] checks passwords, and [Attempts] counts failed log-ins.
package auth
