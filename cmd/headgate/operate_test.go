package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
)

var (
	figures = regexp.MustCompile(`\d[\d,.:]*(?:[µm]?s|m\d+s|m| [kM]B)?\+?(?: ago| before)?`)
	spaces  = regexp.MustCompile(` +`)
)

// masked returns a line in which no figure and no width matters.
func masked(line string) string {
	return spaces.ReplaceAllString(figures.ReplaceAllString(line, "N"), " ")
}

// The page prints what the commands print, but for figures, and for what depends on the server
// and on the load of the machine.
func TestThePageOfOperatorsPrintsWhatTheCommandsDo(t *testing.T) {
	data, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(block.ReplaceAllString(string(data), ""))); n > 500 {
		t.Errorf("the page has %d words", n)
	}

	s := newSystem(t, "redis://"+redistest.Start(t).Addr)
	s.prefix = "hg:"
	s.publish(systemPolicies)
	i := s.instance("shop")
	i.counts(1, "api", events.Allowed)
	i.counts(2, "api", events.Refused)
	i.publishes("api", topkeys.Key{Key: "alice", Count: 9, Since: time.Now()})

	// Each command is carried out on that system.
	commands := 0
	for _, m := range block.FindAllStringSubmatch(string(data), -1) {
		line, want, _ := strings.Cut(m[2], "\n")

		args := strings.Fields(strings.TrimPrefix(line, "$ headgate "))
		if args[0] == "bench" {
			args[2] = "1s"
		}
		got := s.call(args...).out
		commands++

		// Of bench the sentence depends on the load, and of doctor a line on the server.
		if args[0] == "bench" {
			want, _, _ = strings.Cut(want, "\n\n")
			got, _, _ = strings.Cut(got, "\n\n")
			want, got = want+"\n", got+"\n"
		}

		got = regexp.MustCompile(`(?m)^(warn|ok  ) version: .*\n|^\d+ failures?, .*\n`).ReplaceAllString(got, "")
		want = regexp.MustCompile(`(?m)^\d+ failures?, .*\n`).ReplaceAllString(want, "")
		if masked(got) != masked(want) {
			t.Errorf("%s prints\n%s", line, got)
		}
	}
	if commands != 6 {
		t.Errorf("the page has %d commands", commands)
	}
}
