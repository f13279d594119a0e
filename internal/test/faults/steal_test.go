package faults

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// steal measures for how long the host denied a virtual machine its processors. A
// thread on such a processor seems to run.
type steal struct{ known map[string]time.Duration }

func newSteal() *steal {
	s := &steal{known: map[string]time.Duration{}}
	s.worst()
	return s
}

// worst returns the longest time that a processor was denied since the last call.
func (s *steal) worst() (most time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}

	for line := range strings.SplitSeq(string(text), "\n") {
		cpu, d, ok := stolen(line)
		if !ok {
			continue
		}
		most = max(most, d-s.known[cpu])
		s.known[cpu] = d
	}
	return most
}

// stolen reads the eighth number of a processor from a line of /proc/stat, in
// hundredths of a second.
func stolen(line string) (cpu string, d time.Duration, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] == "cpu" || !strings.HasPrefix(fields[0], "cpu") {
		return "", 0, false
	}
	n, err := strconv.ParseInt(fields[8], 10, 64)
	return fields[0], time.Duration(n) * 10 * time.Millisecond, err == nil
}

func TestStolenReadsTheEighthNumberOfAProcessor(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"cpu0 335 0 307 24587 4 0 2 3 0 0":     30 * time.Millisecond,
		"cpu1 612 0 428 24077 88 0 6 1234 9 9": 12340 * time.Millisecond,
		"cpu  947 0 735 48664 93 0 9 1237 0 0": -1, // all of them
		"cpu0 335 0 307 24587 4 0 2":           -1,
		"cpu0 335 0 307 24587 4 0 2 many":      -1,
		"ctxt 1 2 3 4 5 6 7 8 9":               -1,
		"":                                     -1,
	} {
		_, got, ok := stolen(line)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %t", line, got, ok)
		}
	}
}
