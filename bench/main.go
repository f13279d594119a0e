// Bench runs headgate and other rate limiters for Go side by side on the same
// work and prints Markdown tables. Every figure is the median of rounds in which
// the contenders take turns, so that other work of the machine hits all alike:
// ratios between rows carry over to other machines, the figures do not. A
// contender that fails is reported as failed.
//
//	go -C bench run . [-quick] [-only goals,memory,...] [-json] [-docs ../docs]
//	go -C bench run . -guard
//
// With -docs it writes benchmarks.md and its charts into that folder as well, and the
// table of speed into README.md beside it, which takes all sections. With -guard it
// measures the goals in a short time, and fails if headgate has become slow. The parts
// about Redis need redis-server in the PATH, and the program says so if there is none.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// pace is the amount of measuring.
type pace struct {
	rounds int
	round  time.Duration // of one contender
	keys   int           // in the measurement of the heap
	life   time.Duration // of those keys
}

var (
	thorough = pace{rounds: 7, round: 150 * time.Millisecond, keys: 1_000_000, life: 8 * time.Second}
	quick    = pace{rounds: 5, round: 30 * time.Millisecond, keys: 100_000, life: 2 * time.Second}
)

// sections are what -only chooses from.
var sections = []struct {
	name string
	run  func(pace) ([]Table, error)
}{
	{"goals", goalsSection},
	{"memory", memorySection},
	{"redis", redisSection},
	{"distance", distanceSection},
	{"http", httpSection},
	{"rules", rulesSection},
	{"cores", coresSection},
}

// sectionNames returns the names of all sections.
func sectionNames() string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return strings.Join(names, ",")
}

func main() {
	fast := flag.Bool("quick", false, "measure for a shorter time")
	only := flag.String("only", sectionNames(), "the sections to run, with commas between them")
	asJSON := flag.Bool("json", false, "print JSON instead of Markdown")
	docs := flag.String("docs", "", "write benchmarks.md and charts into this folder, and README.md's table")
	guarding := flag.Bool("guard", false, "fail if headgate has become slow beside its rivals")
	alone := flag.String("heap", "", "print the heap of a key of this peer; the program calls itself so")
	flag.Parse()

	p := thorough
	if *fast {
		p = quick
	}
	// A server has a larger heap than this program, in which the garbage
	// collector would run all the time.
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)

	var err error
	switch {
	case *alone != "":
		err = printHeap(*alone, p)
	case *guarding:
		err = guard(os.Stdout)
	default:
		err = run(p, *only, *asJSON, *docs)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(p pace, only string, asJSON bool, docs string) error {
	tables, err := measure(p, strings.Split(only, ","))
	if err != nil {
		return err
	}

	if docs != "" {
		flags := ""
		if p == quick {
			flags = "-quick "
		}
		if err := writeDocs(docs, flags, tables); err != nil {
			return err
		}
	}

	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "\t")
		return e.Encode(tables)
	}
	return writeMarkdown(os.Stdout, tables)
}

// measure runs the sections with those names.
func measure(p pace, names []string) ([]Table, error) {
	var all []Table
	for _, name := range names {
		found := false

		for _, s := range sections {
			if s.name != name {
				continue
			}
			found = true
			tables, err := s.run(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, tables...)
		}

		if !found {
			return nil, fmt.Errorf("there is no section %q", name)
		}
	}
	return all, nil
}
