package readme

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

var update = flag.Bool("update", false, "write docs/limit.svg anew")

// The drawing of the README shows a limit under requests that come at a constant
// rate.
const (
	drawnLimit = "5/10s"
	drawnEvery = 500 * time.Millisecond
	drawnSpan  = 20 * time.Second
)

// admissions decides one request of one unit at each instant of the drawing, in
// order, with the arithmetic of core and a clock of its own.
func admissions(limit core.Limit) []bool {
	var state core.State
	ops := []core.Op{{Verb: core.Take, Rule: "drawing", Limit: limit, Cost: 1}}
	out := make([]core.Decision, 1)
	var admitted []bool
	for at := time.Duration(0); at < drawnSpan; at += drawnEvery {
		core.Decide(ops, []*core.State{&state}, at.Microseconds(), out)
		admitted = append(admitted, out[0].Allowed)
	}
	return admitted
}

// Sizes of the drawing, in pixels. A request takes step pixels.
const (
	left, step    = 20, 17
	top, base     = 40, 90
	width, height = 2*left + 40*step, 132
)

// drawing returns the text of docs/limit.svg. An admitted request is a full bar and a
// refused one an empty circle, so that no color is needed to read it. Its colors
// have enough contrast on white and on black.
func drawing(admitted []bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="sans-serif" font-size="13" fill="#768390">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<title>%s under two requests a second for twenty seconds</title>\n", drawnLimit)

	// A request is a step of the time axis: bars stand side by side, and circles on the base.
	taken := 0
	for i, ok := range admitted {
		x := left + i*step
		if ok {
			taken++
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="11" height="%d" rx="2" fill="#2f81f7"/>`+"\n",
				x+3, top, base-top)
		} else {
			fmt.Fprintf(&b, `<circle cx="%d.5" cy="%d" r="4" fill="none" stroke="#d29922" stroke-width="1.5"/>`+"\n",
				x+8, base-6)
		}
	}

	// The axis has a number each five seconds.
	fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="#768390"/>`+"\n", left, base+1, width-left)
	for s := 0; s <= int(drawnSpan/time.Second); s += 5 {
		x := left + s*step*int(time.Second/drawnEvery)
		fmt.Fprintf(&b, `<path d="M%d %dv6" stroke="#768390"/><text x="%d" y="%d" text-anchor="middle">%d s</text>`+"\n",
			x, base+1, x, base+22, s)
	}

	// The legend counts, so that the text and the picture cannot differ.
	fmt.Fprintf(&b, `<rect x="%d" y="12" width="11" height="13" rx="2" fill="#2f81f7"/><text x="%d" y="23">admitted: %d</text>`+"\n",
		left+3, left+22, taken)
	fmt.Fprintf(&b, `<circle cx="%d" cy="18.5" r="4" fill="none" stroke="#d29922" stroke-width="1.5"/><text x="%d" y="23">refused: %d</text>`+"\n",
		left+140, left+152, len(admitted)-taken)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func TestLimitDrawing(t *testing.T) {
	limit := core.MustParseLimit(drawnLimit)
	admitted := admissions(limit)

	t.Run("six at first, then one every two seconds", func(t *testing.T) {
		for i, ok := range admitted {
			if want := i < 6 || i%4 == 0; ok != want {
				t.Errorf("the request at %s: admitted %t, want %t", time.Duration(i)*drawnEvery, ok, want)
			}
		}
	})

	t.Run("docs/limit.svg is up to date", func(t *testing.T) {
		path := filepath.Join(root, "docs", "limit.svg")
		want := drawing(admitted)
		if *update {
			write(t, path, want)
		}

		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error("docs/limit.svg is stale; go test ./internal/readme -update writes it anew")
		}
	})
}
