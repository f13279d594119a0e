package collector

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// next returns at what size of the heap the next collection begins.
func next() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC
}

// resident returns the bytes of memory that the process has, or 0 if the system does not
// say.
func resident(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(string(bytes.Fields(text)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestRelax(t *testing.T) {
	t.Cleanup(func() { held = nil })
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")

	// A program that sets one of them decides by itself.
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name+" is set", func(t *testing.T) {
			t.Setenv(name, "100")
			Relax()
			if held != nil || next() >= reserve {
				t.Error("the collector was changed")
			}
		})
	}

	used := bytes.Repeat([]byte{1}, 3<<20) // leaves pages that were in use
	runtime.KeepAlive(used)
	runtime.GC()

	had := resident(t)
	Relax()

	if got := next(); got < 2*reserve {
		t.Errorf("the next collection is at %d bytes, want %d beside twice what is in use", got, 2*reserve)
	}

	// The reserve counts for the collector and takes no memory, because it is never written to.
	if grown := resident(t) - had; grown > reserve/8 {
		t.Errorf("the process has %d bytes more: the reserve was touched", grown)
	}
}
