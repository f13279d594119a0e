package service

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/policy"
)

// Bounds of texts, in bytes.
const (
	MaxUserName = 64
	MaxText     = 1000 // of a description
	MaxLabel    = 100  // of a token
	MaxComment  = 500  // on a change
	MaxSearch   = 200
)

// CheckUser returns an error if s is not a name of a user. A name is 1 to
// MaxUserName letters, digits and ".", "_", "@", "+", "-", and begins with a
// letter or digit. Upper and lower case differ.
func CheckUser(s string) error {
	valid := s != "" && len(s) <= MaxUserName && isAlphanumeric(s[0])
	for i := range len(s) {
		valid = valid && (isAlphanumeric(s[i]) || strings.IndexByte("._@+-", s[i]) >= 0)
	}
	if !valid {
		return fmt.Errorf("it is not 1 to %d letters, digits, ., _, @, + and -, a letter or digit first", MaxUserName)
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// sanitize makes a client's text safe for a column: valid UTF-8 without control
// characters, cut to maxBytes.
func sanitize(s string, maxBytes int) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(clip(s, maxBytes), "?"))
	return strings.ToValidUTF8(clip(s, maxBytes), "")
}

// clip returns the beginning of a text, of at most maxBytes.
func clip(s string, maxBytes int) string { return s[:min(len(s), maxBytes)] }

// Digits returns a number with its Digits in groups of three: 1,234,567.
func Digits(n int64) string {
	s, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		s, sign = s[1:], "-"
	}

	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// ModeWords returns the words that people read for a mode: "in force", "in shadow" or "off".
func ModeWords(m policy.Mode) string {
	switch m {
	case policy.Enforce:
		return "in force"
	case policy.Shadow:
		return "in shadow"
	}
	return m.String()
}
