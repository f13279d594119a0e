//go:build js && wasm

// The program of the page in the browser: a function that takes the texts of the form and a width
// in pixels, and returns what the page shows.
package main

import (
	"syscall/js"
	_ "time/tzdata" // a browser lends no rules of time zones

	"github.com/headgate/headgate/internal/playground"
)

func main() {
	js.Global().Set("play", js.FuncOf(func(_ js.Value, args []js.Value) any {
		f := playground.Form{Limit: args[0].String(), And: args[1].String(), Requests: args[2].String(),
			For: args[3].String()}
		picture, faults := playground.Play(f, args[4].Int())

		// The browser takes no other types than these.
		var wrong, sides []any
		for _, f := range faults {
			var parts []any
			for _, p := range f.Parts {
				parts = append(parts, p)
			}
			wrong = append(wrong, map[string]any{"field": f.Field, "text": f.Text, "parts": parts})
		}

		for _, s := range picture.Sides {
			var admits []any
			for _, a := range s.Admits {
				admits = append(admits, map[string]any{"after": a.After, "units": a.Units})
			}
			sides = append(sides, map[string]any{"limit": s.Limit, "words": s.Words, "atMost": s.AtMost,
				"admits": admits, "figures": []any{s.Asked, s.Admitted, s.Refused, s.Wait, s.First}})
		}

		return map[string]any{"faults": wrong, "sides": sides, "summary": picture.Summary, "svg": picture.SVG,
			"bar": picture.Bar}
	}))

	// The page begins when the function is there, and this program never ends.
	js.Global().Call("ready")
	select {}
}
