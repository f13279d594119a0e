package policy

import (
	"errors"
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"unicode/utf8"
)

// Bounds of the fields of a policy.
const (
	// MaxName is the most bytes of the name of a policy or of an application.
	MaxName = 64

	// MaxApps is the most applications that a policy may name.
	MaxApps = 100

	// MaxText is the most bytes of a description.
	MaxText = 1000

	// MaxPriority bounds Policy.Priority, above and below 0.
	MaxPriority = 1_000_000
)

// maxPerson is the most bytes of Policy.CreatedBy and Policy.UpdatedBy.
const maxPerson = 200

func checkName(s string) error {
	valid := s != "" && len(s) <= MaxName && 'a' <= s[0] && s[0] <= 'z'
	for i := range len(s) {
		valid = valid && inName(s[i])
	}
	if !valid {
		return fmt.Errorf("it is not 1 to %d of a-z, 0-9, _, . and -, a letter first", MaxName)
	}
	return nil
}

func inName(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckApp returns an error if s is not a name of an application. A name is 1 to
// MaxName letters, digits, "_", ".", "-" and "/", and begins with a letter or
// digit.
func CheckApp(s string) error {
	valid := s != "" && len(s) <= MaxName && isAlphanumeric(s[0])
	for i := range len(s) {
		c := s[i]
		valid = valid && (isAlphanumeric(c) || c == '_' || c == '.' || c == '-' || c == '/')
	}
	if !valid {
		return fmt.Errorf("%q is not 1 to %d letters, digits, _, ., - and /, a letter or digit first", textform.Clip(s), MaxName)
	}
	return nil
}

// checkApp is CheckApp for the application that a caller of the package names.
func checkApp(s string) error {
	if err := CheckApp(s); err != nil {
		return fmt.Errorf("policy: the application %w", err)
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// checkText refuses control characters, invalid UTF-8 and more than bound bytes.
func checkText(s string, bound int) error {
	if len(s) > bound {
		return fmt.Errorf("%d bytes are more than %d", len(s), bound)
	}
	if !utf8.ValidString(s) {
		return errors.New("it is not UTF-8")
	}
	for _, c := range s {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return fmt.Errorf("it holds the control character %U", c)
		}
	}
	return nil
}
