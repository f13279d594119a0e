package playground

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// The test of the page, cmd/headgate-console/e2e, compares the numbers with those of a store and
// the words with those of the command headgate.

func TestPicture(t *testing.T) {
	p, faults := Play(Form{Limit: "5/10s", And: "5/10s fixed-window", Requests: "bursts 4/5s", For: "20s"}, 400)
	if len(faults) > 0 {
		t.Fatal(faults)
	}

	// A burst of 4, and then units come back each 2 s; or a window each 10 s.
	const want = "Within 20s, 5/10s admits 12 of 16 requests and 5/10s fixed-window admits 10 of 16 requests."
	if p.Summary != want || p.Bar != "500ms" {
		t.Errorf("the summary is %q and a bar %s, want %q", p.Summary, p.Bar, want)
	}

	// Of an axis of 15 in 200 pixels, the first course rises to 4, and after 5 s further.
	for _, piece := range []string{
		`class="line a" d="M52 228.0H52V174.7H131V`, `class="line b"`, `>A</text>`, `>B</text>`, `width="400" height="`,
		`class="asked"`, `class="bars a"`, `>5s</text>`, `>admitted in all</text>`,
	} {
		if !strings.Contains(p.SVG, piece) {
			t.Errorf("the drawing has no %s:\n%s", piece, p.SVG)
		}
	}
}

// A drawing is well-formed, bounded and as wide as asked for, whatever the numbers.
func TestDrawingIsWellFormed(t *testing.T) {
	for _, f := range []Form{
		{Limit: "1/1ms", Requests: "steady 1/1d", For: "1ms"},
		{Limit: "1/400d", And: "900000/400d burst=1", Requests: "eager 1h", For: "400d"},
		{Limit: "10000/1s", And: "1000/1s sliding-log", Requests: "random 9000/1s", For: "1s"},
		{Limit: "3/1m", Requests: "random 1/400d seed=18446744073709551615", For: "1ms"}, // asks nothing
	} {
		for width, want := range map[int]string{-1: "280", 0: "280", 328: "328", 1 << 30: "1600"} {
			p, faults := Play(f, width)

			if len(faults) > 0 {
				t.Fatalf("%+v: %v", f, faults)
			}
			if len(p.SVG) > 60_000 || !strings.Contains(p.SVG, ` width="`+want+`" `) {
				t.Errorf("%+v: %d bytes for a width of %d: %.200s", f, len(p.SVG), width, p.SVG)
			}

			// Each token is read, to the end.
			d := xml.NewDecoder(strings.NewReader(p.SVG))
			for {
				if _, err := d.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%+v: %v\n%s", f, err, p.SVG)
				}
			}
		}
	}
}

func TestDrawingEscapes(t *testing.T) {
	r := &replay{requests: []request{{0, true}}, admitted: 1}
	s := drawingOf([]*replay{r}, time.Second, 300).svg([]Side{{}}, `<script>&"`)

	if strings.Contains(s, "<script>") || !strings.Contains(s, "&lt;script&gt;&amp;") {
		t.Error(s)
	}
}

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"limit 100/1m brust=1":                   "character 8: unknown word|100/1m |brust=1|",
		"limit é/1m":                             "character 1: quota||é/1m|",
		"limit 0/1m":                             "character 1: quota 0 is not positive||0/1m|",
		"limit 5/1x":                             "character 1: period||5/1x|",
		"limit 1/1m\u3000burst=x":                "character 6: burst|1/1m\u3000|burst=x|",
		"limit 1/1m burst=2 burst=2":             "character 14: a second|1/1m burst=2 |burst=2|",
		"limit 1/1m fixed-window burst=2":        "character 19: burst means nothing|1/1m fixed-window |burst=2|",
		"limit 1/1m sliding-log segments=3":      "character 18: segments mean nothing|1/1m sliding-log |segments=3|",
		"limit 1/1m aligned":                     "character 6: aligned means nothing|1/1m |aligned|",
		"limit 1/1m tz=UTC":                      "character 6: tz is for|1/1m |tz=UTC|",
		"limit 1/month start=31":                 "character 9: calendar|1/month |start=31|",
		"limit 5":                                `character 1: "5" has no period||5|`,
		"limit 5 concurrent":                     "a concurrent limit needs a ttl",
		"limit 5/1m " + strings.Repeat("x", 150): "character 6: unknown word|5/1m |" + strings.Repeat("x", 150) + "|",
		"limit a\x00b":                           "it holds the control character U+0000",
		"limit " + strings.Repeat("é", 101):      "202 bytes are more than 200",
		"requests ":                              "it is empty",
		"requests often":                         `character 1: "often" is none of the patterns||often|`,
		"requests steady":                        `character 1: "steady" says too little; write, say, "steady 10/1s"||steady|`,
		"requests polite":                        `character 1: "polite" says too little; write, say, "polite 100ms"||polite|`,
		"requests steady 0/1s":                   "character 8: rate|steady |0/1s|",
		"requests steady 5":                      "character 8: rate|steady |5|",
		"requests eager 1month":                  "character 7: time|eager |1month|",
		"requests random 1/1s seed=-1":           "character 13: seed|random 1/1s |seed=-1|",
		"requests bursts 1/1s takes=0s":          "character 13: takes|bursts 1/1s |takes=0s|",
		"requests bursts 1/1s takes=1s takes=1s": `character 22: a second "takes"|bursts 1/1s takes=1s |takes=1s|`,
		"requests steady 1/1s seed=1":            `character 13: "seed=1" means nothing to steady|steady 1/1s |seed=1|`,
		"requests steady 10001/1s":               "more than 10000 requests come within 1s",
		"for 1s 2s":                              "time",
		"for year":                               `character 1: time "year" is not a duration||year|`,
		"for 0s":                                 "character 1: time||0s|",
		"for -1s":                                "character 1: time||-1s|",
	} {
		f := Form{Limit: "1/1s", Requests: "steady 1/1s", For: "1s"}
		field, text, _ := strings.Cut(text, " ")
		*map[string]*string{"limit": &f.Limit, "requests": &f.Requests, "for": &f.For}[field] = text

		// The parts of the text stand behind the text of the fault.
		begin, parts, _ := strings.Cut(want, "|")

		p, faults := Play(f, 400)

		if len(faults) != 1 || faults[0].Field != field || !strings.HasPrefix(faults[0].Text, begin) ||
			strings.Join(faults[0].Parts, "|") != parts || p.SVG != "" {
			t.Errorf("%s %q: %q, want %q", field, text, faults, want)
		}
	}

	// A lease that the page would have to renew is a fault of the pattern.
	_, faults := Play(Form{Limit: "2 concurrent ttl=1s", Requests: "steady 1/1s takes=2s", For: "1s"}, 400)
	want := []string{"steady 1/1s ", "takes=2s", ""}
	if len(faults) != 1 || !slices.Equal(faults[0].Parts, want) ||
		!strings.Contains(faults[0].Text, "character 13: takes 2s") {
		t.Errorf("%q", faults)
	}
}

// The work that a form can cause is bounded.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		limit, requests string
		want            int // requests, or 0 for a fault
	}{
		{"1/1s", "steady 10000/1s", 10_000}, {"1/1s", "steady 10001/1s", 0},
		{"1/1s", "bursts 10000/1m", 10_000}, {"1/1s", "bursts 9223372036854775807/400d", 0},
		{"10000 concurrent ttl=1d", "steady 900/1s takes=1m", 900}, {"10000 concurrent ttl=1d", "steady 1000/1s takes=1m", 0},
		{"10000 concurrent ttl=1d", "bursts 10000/1s takes=1m", 0},
	} {

		// A fault has no sides.
		p, faults := Play(Form{Limit: c.limit, Requests: c.requests, For: "1s"}, 400)
		if asked := append(p.Sides, Side{})[0].Asked; asked != c.want || len(faults) > 0 != (c.want == 0) {
			t.Errorf("%s, %s: %d requests and %v, want %d", c.limit, c.requests, asked, faults, c.want)
		}
	}
}

// Requests that have ended give their leases back, and no other does.
func TestLeases(t *testing.T) {
	p, err := parsePattern("steady 1/1s takes=2500ms")
	if err != nil {
		t.Fatal(err)
	}

	r, err := p.replay(core.MustParseLimit("2 concurrent ttl=10s"), 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}

	// The first and the second hold both until 2.5 s and 3.5 s.
	got := ""

	for _, q := range r.requests {
		got += fmt.Sprint(q.at/1_000_000, q.admitted, " ")
	}
	const want = "0 true 1 true 2 false 3 true 4 true 5 false 6 true 7 true "
	if got != want || r.first != 2*time.Second || r.wait != 8*time.Second {
		t.Errorf("%s, refused first after %s, and the longest wait %s; want %s", got, r.first, r.wait, want)
	}
}

// A lease that ends at the instant of a request is there for it.
func TestLeaseEndsAtItsEnd(t *testing.T) {
	p, faults := Play(Form{Limit: "2 concurrent ttl=10s", Requests: "steady 1/1s takes=2s", For: "8s"}, 400)
	if len(faults) > 0 || p.Sides[0].Admitted != 8 {
		t.Errorf("%+v, %v", p.Sides, faults)
	}
}
