package textform

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestClip(t *testing.T) {
	// 100 bytes are kept.
	for text, want := range map[string]string{
		"":                       "",
		strings.Repeat("a", 100): strings.Repeat("a", 100),

		strings.Repeat("a", 101):  strings.Repeat("a", 100) + "…",
		strings.Repeat("a", 5000): strings.Repeat("a", 100) + "…",

		// The cut falls inside of a rune, which is left out as a whole. The last one is no rune at
		// all.
		strings.Repeat("ä", 51):     strings.Repeat("ä", 50) + "…",
		strings.Repeat("漢", 50):     strings.Repeat("漢", 33) + "…",
		strings.Repeat("😀", 26):     strings.Repeat("😀", 25) + "…",
		strings.Repeat("\x80", 101): strings.Repeat("\x80", 96) + "…",
	} {
		if got := Clip(text); got != want {
			t.Errorf("%d bytes: got %q, want %q", len(text), got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                "0s",
		time.Microsecond: "1µs",
		10 * time.Second: "10s",
		time.Minute:      "1m",

		// A unit that is zero is left out only at the end, so a zero minute stays between others.
		90 * time.Second:        "1m30s",
		time.Hour:               "1h",
		time.Hour + time.Minute: "1h1m",
		time.Hour + time.Second: "1h0m1s",
		400 * 24 * time.Hour:    "9600h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d ns: got %q, want %q", d, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	// At most 8 bytes are allowed. Breaks and tabs are text, other control characters are not.
	for text, want := range map[string]string{
		"":         "",
		"é\n\tx":   "",
		"12345678": "",

		"123456789": "9 bytes are more than 8",

		// What a log or a terminal could not show.
		"\xff":  "it is not UTF-8",
		"a\x00": "it holds the control character U+0000",
		"a\r\n": "it holds the control character U+000D",
		"\x7f":  "it holds the control character U+007F",
	} {
		got := ""
		if err := Check(text, 8); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAppendInt(t *testing.T) {
	numbers := []int64{0, -1, math.MinInt64, math.MaxInt64}
	for n := int64(1); n > 0 && n <= math.MaxInt64/10; n *= 10 {
		numbers = append(numbers, n-1, n, n+1, 7*n)
	}
	for i := range 63 {
		numbers = append(numbers, 1<<i-1, 1<<i)
	}

	for _, n := range append(numbers, 1e18, 1e18-1) {
		want := strconv.FormatInt(n, 10)
		// Both with room for the digits, in which there is something else, and without.
		for _, b := range [][]byte{[]byte("r="), append(make([]byte, 0, 40), "r=xxxxxxxxxxxxxxxxxxxxxxxxxxx"...)[:2]} {
			if got := string(AppendInt(b, n)); got != "r="+want {
				t.Errorf("%q, want r=%s", got, want)
			}
		}
	}
}
