package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestParseBan(t *testing.T) {
	want := core.Ban{Strikes: 20, Within: time.Minute, For: 10 * time.Minute, Max: 24 * time.Hour}

	// The order of the parts, their spaces and their units are free.
	for _, text := range []string{
		"20/1m for 10m max 24h", "20/m for 600s max 1d", "  max 24h\tfor 10m\n20/60s ",
	} {
		if got, err := core.ParseBan(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}

	// It is written one way, so that texts can be compared.
	if got := want.String(); got != "20/1m for 10m max 24h" {
		t.Errorf("%s", got)
	}
	if got := core.MustParseBan("1/1h30m for 90s max 90s").String(); got != "1/1h30m for 1m30s max 1m30s" {
		t.Errorf("%s", got)
	}
}

// Every mistake of a text is named.
func TestParseBanMistakes(t *testing.T) {
	const most = "9600h0m0s"

	// The first element is the text and the others are the lines of its error, all of them.
	for _, row := range [][]string{
		{"", `it is empty; write, say, "20/1m for 10m max 24h"`},
		{"20/1m", `for is missing; write, say, "for 10m"`, `max is missing; write, say, "max 24h"`},
		{"for 10m max 24h", "it does not say how many refusals in how long begin a ban, such as 20/1m"},
		{"20 for 10m max 24h", `"20" is not a number of refusals and a time, such as 20/1m`},
		{"x/1m for 10m max 24h", `"x/1m" is not a number of refusals and a time, such as 20/1m`},
		{"20/month for 10m max 24h", `"20/month" is not a number of refusals and a time, such as 20/1m`},
		{"20/1m for soon max", `for "soon" is not a duration such as 10s, 1m or 24h`,
			`max "" is not a duration such as 10s, 1m or 24h`},
		{"20/1m aligned for 10m max 24h", `"aligned" is one word too many`},
		{"20/1m for 10m for 5m max 24h", "for is given twice"},
		{"0/1m for 25h max 24h", "strikes 0 is not within 1 to 2147483648", "for is above max"},
		{"20/0s for 1us max 9601h", "within 0s is not within 1ms to " + most, "for 1µs is not within 1ms to " + most,
			"max 9601h0m0s is not within 1ms to " + most},
		{"99999999999999999999/1m for 10m max 24h",
			`"99999999999999999999/1m" is not a number of refusals and a time, such as 20/1m`},
	} {
		want := fmt.Sprintf("ban %q: ", row[0]) + strings.Join(row[1:], "\n")
		if b, err := core.ParseBan(row[0]); fmt.Sprint(err) != want || b != (core.Ban{}) {
			t.Errorf("%+v, %v\nwant %s", b, err, want)
		}
	}

	// A text in a program's own code is the programmer's fault: it panics, with the same words.
	defer func() {
		if v := recover(); v != `headgate: ban "": it is empty; write, say, "20/1m for 10m max 24h"` {
			t.Errorf("%v", v)
		}
	}()
	core.MustParseBan("")
}

// String and ParseBan are inverse on valid bans, and so are the two methods of text.
func TestBanTextIsInverse(t *testing.T) {
	span := func(t *rapid.T, name string, from time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(from.Microseconds(), core.MaxPeriod.Microseconds()).Draw(t,
			name)) * time.Microsecond
	}

	rapid.Check(t, func(t *rapid.T) {
		b := core.Ban{Strikes: rapid.Int64Range(1, 1<<31).Draw(t, "strikes"),
			Within: span(t, "within", time.Millisecond), For: span(t, "for", time.Millisecond)}

		// Max is drawn from For on, as a ban with For above Max is not valid.
		b.Max = span(t, "max", b.For)
		if got, err := core.ParseBan(b.String()); err != nil || got != b {
			t.Fatalf("%s: %+v, %v", b, got, err)
		}

		// JSON goes through MarshalText and UnmarshalText.
		text, err := json.Marshal(b)
		var got core.Ban
		if err != nil || json.Unmarshal(text, &got) != nil || got != b {
			t.Fatalf("%s: %+v, %v", text, got, err)
		}
	})
}

func TestBanTextOfNone(t *testing.T) {
	// The empty text is no ban, so that a configuration can take one away.
	b := core.Ban{Strikes: 1}
	if err := b.UnmarshalText(nil); err != nil || b != (core.Ban{}) || b.String() != "" {
		t.Errorf("%+v, %v", b, err)
	}

	if text, err := b.MarshalText(); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}

	// What is not valid is not written, nor is anything kept of a text that fails.
	if text, err := (core.Ban{Strikes: 1}).MarshalText(); err == nil {
		t.Errorf("a ban that is not valid is %q", text)
	}
	if err := b.UnmarshalText([]byte("20/1m")); err == nil || b != (core.Ban{}) {
		t.Errorf("%+v, %v", b, err)
	}
}

// Whatever text is a ban has a text that is the same ban.
func FuzzParseBan(f *testing.F) {
	for _, text := range []string{"20/1m for 10m max 24h", "max 1d 1/s for .5s", "20/1m for for max max"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := core.ParseBan(text)
		if err != nil {
			return
		}
		if again, err := core.ParseBan(b.String()); err != nil || again != b {
			t.Errorf("%q: %s: %+v, %v", text, b, again, err)
		}
	})
}
