// Package textform shortens the texts in errors and limits, and checks texts of users. [Clip]
// shortens a text, and [Check] checks one.
package textform

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// maxClip is the maximum number of bytes that Clip keeps, without the ellipsis.
const maxClip = 100

// Clip returns a text that is quoted in an error, cut to at most 100 bytes of whole
// runes and an ellipsis if it is longer.
func Clip(s string) string {
	if len(s) <= maxClip {
		return s
	}
	end := maxClip
	for end > maxClip-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Line returns the text of an error in one line. The mistakes that [errors.Join] puts
// in lines of their own are separated by semicolons.
func Line(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }

// Duration returns d.String() without the units that are zero: 1m, not 1m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Check refuses control characters other than newline and tab, invalid UTF-8, and more
// than max bytes.
func Check(s string, max int) error {
	if len(s) > max {
		return fmt.Errorf("%d bytes are more than %d", len(s), max)
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
