package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// bursts is a log of 100 callers, of which the first sends 1 request, the second 2, and so on, all
// at once.
func bursts() string {
	var b strings.Builder
	for caller := range 100 {
		for range caller + 1 {
			fmt.Fprintf(&b, "192.0.2.%d - - [28/Nov/2026:08:00:00 +0000] \"GET /a HTTP/1.1\" 200 1\n", caller)
		}
	}
	return b.String()
}

func TestSuggestPrintsTheSmallestLimits(t *testing.T) {
	log := file(t, "access.log", bursts())

	// Ten callers send more than 90, and together 55 requests beyond it.
	call(t, "", "suggest", "-touch", "10%", log).want(t, fine, "5,050 requests of 100 callers by ip",
		"  90/1m                              10  10.00%                55",
		"  90/1m fixed-window                 10  10.00%                55", "1/1m burst=90", "the knee")
	call(t, bursts(), "suggest", "-touch", "10%", "-").want(t, fine, "read once", "10.00%                 -")
	call(t, "", "suggest", "-touch", "10%", "-path", "/b", log).want(t, findings, "no limit can be suggested")

	// The limits are tried with as many keys as may be in memory.
	call(t, "", "suggest", "-touch", "10%", "-max-keys", "2", log).want(t, fine, "shared limits, as 2 keys were in use")

	var got suggestResult
	out := call(t, "", "suggest", "-json", "-touch", "0%", "-period", "1h", log).want(t, fine).out
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Suggestions[0].Limit != "100/1h" || *got.Suggestions[0].Refused != 0 || len(got.Logs) != 1 {
		t.Errorf("%s", out)
	}
}

func TestSuggestWithMistakes(t *testing.T) {
	log := file(t, "access.log", bursts())
	call(t, "", "suggest").want(t, usage, "no log")
	call(t, "", "suggest", "-touch", "2", log).want(t, usage, "is not a share")
	call(t, "", "suggest", "-period", "0s", log).want(t, usage, "period")
	call(t, "", "suggest", "-key", "api-key", log).want(t, usage, "needs the API key")
	call(t, "", "suggest", "-key", "nobody", log).want(t, usage, "nobody")
	call(t, "", "suggest", "-html", "/does/not/exist", log).want(t, usage, "/does/not/exist")
}

// The page is whole by itself: well-formed pictures, no script, no address of another page, and no
// text of a user as markup.
func TestSuggestWritesAPage(t *testing.T) {
	log := file(t, "a<b>&.log", bursts())
	page := file(t, "report.html", "")
	call(t, "", "suggest", "-touch", "10%", "-html", page, log).want(t, fine)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	got := string(text)
	for _, want := range []string{"a&lt;b&gt;&amp;.log", "prefers-color-scheme:dark", "<code>90/1m</code>",
		"Callers by their peak in any 1m", "Refusals over time"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q", want)
		}
	}
	for _, not := range []string{"<script", "http:", "https:", "<b>", "src=", "NaN", "Inf"} {
		if strings.Contains(got, not) {
			t.Errorf("there is %q", not)
		}
	}

	// A picture is XML, whose reader finds what is not closed.
	pictures := 0
	for _, part := range strings.Split(got, "<svg")[1:] {
		svg, _, whole := strings.Cut("<svg"+part, "</svg>")
		pictures++
		d := xml.NewDecoder(strings.NewReader(svg + "</svg>"))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || !whole {
				t.Fatalf("picture %d: %v", pictures, err)
			}
		}
	}
	if pictures != 3 {
		t.Errorf("%d pictures, want 3", pictures)
	}
}
