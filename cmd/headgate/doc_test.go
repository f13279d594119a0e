package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the outputs of docs/plan.md anew")

// block is a block of the page: its kind and its text.
var block = regexp.MustCompile("(?s)```(console|yaml)\n(.*?)```")

// fileName is the name of a file that a block of YAML is the text of.
var fileName = regexp.MustCompile("`([a-z]+\\.yaml)`:\n\n$")

// The page prints what the commands print, one after the other, over an hour of a shop.
func TestThePagePrintsWhatTheCommandsDo(t *testing.T) {
	page, err := filepath.Abs("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	t.Chdir(t.TempDir())
	if err := os.WriteFile("access.log", []byte(shop()), 0o600); err != nil {
		t.Fatal(err)
	}

	// Files are written as the page has them, and commands are carried out in its order.
	var out strings.Builder
	text, end, commands := string(data), 0, 0
	for _, m := range block.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[end:m[2]])
		end = m[1]
		kind, body := text[m[2]:m[3]], text[m[4]:m[5]]

		if kind == "yaml" {
			if name := fileName.FindStringSubmatch(text[:m[0]]); name == nil {
				t.Errorf("a file has no name:\n%s", body)
			} else if err := os.WriteFile(name[1], []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			out.WriteString(text[m[2]:end])
			continue
		}

		line, _, _ := strings.Cut(body, "\n")
		got := call(t, "", strings.Fields(strings.TrimPrefix(line, "$ headgate "))...)
		commands++
		out.WriteString(kind + "\n" + line + "\n" + got.out + got.err + "```")
	}
	out.WriteString(text[end:])

	if *update {
		if err := os.WriteFile(page, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != text || commands != 5 {
		t.Errorf("docs/plan.md is stale, and go test ./cmd/headgate -update writes it anew; "+
			"it has %d commands, and should be\n%s", commands, out.String())
	}
}

// shop is an hour of a shop: 400 callers who load pages of several requests at once, and two
// programs that ask all the time.
func shop() string {
	var seconds [3600][]int
	x := uint32(1)
	random := func(n int) int {
		x = x*1664525 + 1013904223
		return int(x>>8) % n
	}
	for caller := range 400 {
		for at := random(600); at < 3600; at += 60 + random(600) {
			for range 5 + random(16) {
				seconds[at] = append(seconds[at], caller)
			}
		}
	}
	for at := range seconds {
		seconds[at] = append(seconds[at], 400)
		if at%2 == 0 && at > 1800 {
			seconds[at] = append(seconds[at], 401)
		}
	}

	// A combined log, as nginx writes it.
	var b strings.Builder
	start := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for at, callers := range seconds {
		when := start.Add(time.Duration(at) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		for _, caller := range callers {
			fmt.Fprintf(&b, "192.0.%d.%d - - [%s] \"GET /items/%d HTTP/1.1\" 200 512 \"-\" \"-\"\n", 2+caller/200,
				1+caller%200, when, random(99))
		}
	}
	return b.String()
}
