// This file tests what all commands have in common.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each command has JSON, an exit code for what it finds and for a mistake in the call, a help, a
// completion, and colours on request alone.
func TestCommandsKeepTheConventions(t *testing.T) {
	defer func(d time.Duration) { benchBudget = d }(benchBudget)
	benchBudget = time.Minute // on a busy machine a decision may take longer than in a service
	policies, log := file(t, "limits.yaml", onePolicy), file(t, "access.log", combined(20, "192.0.2.1"))
	broken, none := file(t, "broken.yaml", someMistakes), file(t, "none.log", "")
	running := newSystem(t, "")
	running.publish(onePolicy)
	server := []string{"-redis", running.url, "-prefix", running.prefix}
	calls := map[string]struct{ good, finds []string }{
		"check":      {[]string{policies}, []string{broken}},
		"explain":    {[]string{"100/1m burst=20"}, nil},
		"fmt":        {[]string{policies}, []string{"-d", policies}},
		"plan":       {[]string{"-policies", policies, log}, []string{"-policies", policies, none}},
		"suggest":    {[]string{log}, []string{none}},
		"completion": {[]string{"bash"}, nil},
		"keys":       {append(slices.Clone(server), "-limit", "100/1m", "-rule", "a", "peek", "ann"), nil},
		"top":        {append(slices.Clone(server), "-once"), nil},
		"bench":      {append(slices.Clone(server), "-for", "1s"), nil},
		"doctor":     {server, nil},
	}

	var scripts []string
	for _, shell := range []string{"bash", "zsh", "fish"} {
		scripts = append(scripts, call(t, "", "completion", shell).want(t, fine).out)
	}

	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			x, known := calls[c.name]
			if !known {
				t.Fatal("the command has no call here")
			}

			call(t, "", append([]string{c.name}, x.good...)...).want(t, fine)
			if x.finds != nil {
				call(t, "", append([]string{c.name}, x.finds...)...).want(t, findings)
			}

			// A mistake in the call is one line on the standard error, and nothing else.
			got := call(t, "", append([]string{c.name, "-no-flag"}, x.good...)...).want(t, usage, c.name, "-no-flag")
			if got.out != "" || strings.Count(got.err, "\n") != 1 {
				t.Errorf("%q and %q", got.out, got.err)
			}

			help := call(t, "", c.name, "-h").want(t, fine, "Exit codes: 0 fine, 1 findings, 2 ").out
			if got := call(t, "", "help", c.name).want(t, fine).out; got != help {
				t.Errorf("help %s is another help:\n%s\n%s", c.name, got, help)
			}

			// Flags are in the help and in all scripts, and one of them is for JSON.
			hasJSON := false
			for _, f := range c.flagsOf() {
				hasJSON = hasJSON || f.Name == "json"
				for _, text := range append(scripts, help) {
					if !strings.Contains(text, f.Name) {
						t.Errorf("there is no flag %s in\n%s", f.Name, text)
					}
				}
			}
			if hasJSON != (c.name != "completion") {
				t.Errorf("there is a flag -json: %t", hasJSON)
			}
			if hasJSON {
				wantJSON(t, c.name, fine, x.good)
				wantJSON(t, c.name, findings, x.finds)
			}
		})
	}
}

// wantJSON calls a command with -json, on a terminal with colours, and with none where it must not
// have any. Its output is one value of JSON.
func wantJSON(t *testing.T, name string, code int, args []string) {
	t.Helper()
	if args == nil || args[0] == "-d" { // which prints a difference alone
		return
	}

	for _, color := range []bool{false, true} {
		var out, err bytes.Buffer
		e := &env{in: strings.NewReader(""), out: &out, err: &err, color: color}
		if got := run(e, append([]string{name, "-json"}, args...)); got != code || err.Len() > 0 {
			t.Errorf("exit code %d, want %d: %s", got, code, err.String())
		}
		if !json.Valid(out.Bytes()) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q", out.String())
		}
	}
}

// A terminal has colours, unless the environment says otherwise.
func TestTheEnvironmentDecidesAboutColours(t *testing.T) {
	device, err := os.Open("/dev/zero") // a device of characters, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	regular, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()

	for _, row := range []struct {
		out           *os.File
		noColor, term string
		want          bool
	}{
		{device, "", "xterm", true}, {device, "1", "xterm", false}, {device, "", "dumb", false}, {device, "", "", true},
		{regular, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", row.noColor)
		t.Setenv("TERM", row.term)
		if got := mayColor(row.out); got != row.want {
			t.Errorf("%s, NO_COLOR=%q, TERM=%q: %t, want %t", row.out.Name(), row.noColor, row.term, got, row.want)
		}
	}
}
