// Package textform shortens the texts in errors and limits, checks texts of users, and writes
// numbers. [Clip] shortens a text, and [Check] checks one.
package textform

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
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

// pairs are the numbers below 100, each in two digits.
var pairs = func() (list [100][2]byte) {
	for i := range list {
		list[i] = [2]byte{'0' + byte(i/10), '0' + byte(i%10)}
	}
	return list
}()

// leasts are the least numbers of so many digits and one more.
var leasts = func() (list [19]int64) {
	for i, n := 1, int64(10); i < len(list); i, n = i+1, n*10 {
		list[i] = n
	}
	return list
}()

// AppendInt is strconv.AppendInt in base 10. It writes the digits to their place, without a buffer
// of its own, which halves the instructions for the numbers of headers.
func AppendInt(b []byte, n int64) []byte {
	if n < 0 {
		return strconv.AppendInt(b, n, 10)
	}

	// A bit is 0.301 of a digit; the last digit depends on the number.
	size := bits.Len64(uint64(n)) * 1233 >> 12
	if n >= leasts[size] {
		size++
	}

	from := len(b)
	b = slices.Grow(b, size)[:from+size]
	text, rest := b[from:], uint64(n)
	for ; len(text) > 1; text = text[:len(text)-2] {
		*(*[2]byte)(text[len(text)-2:]) = pairs[rest%100]
		rest /= 100
	}
	if len(text) == 1 {
		text[0] = '0' + byte(rest)
	}
	return b
}
