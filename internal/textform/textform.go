// Package textform shortens the texts in errors and limits.
package textform

import (
	"strings"
	"time"
)

// maxClip is the maximum number of bytes that Clip keeps, without the ellipsis.
const maxClip = 100

// Clip shortens a text that is quoted in an error.
func Clip(s string) string {
	if len(s) > maxClip {
		return s[:maxClip] + "…"
	}
	return s
}

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
