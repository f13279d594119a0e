// Bench runs headgate and other rate limiters for Go side by side on the same
// work and prints Markdown tables. Every figure is the median of rounds in which
// the contenders take turns, so that what else the machine does hits all alike:
// ratios between rows carry over to other machines, the figures do not.
//
//	go -C bench run . [-quick] [-only memory,redis,http,rules] [-json] [-svg] [-guard]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// pace says how much is measured.
type pace struct {
	rounds int
	round  time.Duration // of one contender
	keys   int           // of those that tell what a key costs
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
	{"memory", memorySection},
	{"redis", redisSection},
	{"http", httpSection},
	{"rules", rulesSection},
}

func main() {
	fast := flag.Bool("quick", false, "measure for a shorter time")
	only := flag.String("only", "memory,redis,http,rules", "the sections to run")
	asJSON := flag.Bool("json", false, "print JSON instead of Markdown")
	svg := flag.Bool("svg", false, "draw charts into ../docs")
	guard := flag.Bool("guard", false, "fail if headgate is slower against its peers than it has to be")
	flag.Parse()
	p := thorough
	if *fast {
		p = quick
	}
	if err := run(p, *only, *asJSON, *svg, *guard); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(p pace, only string, asJSON, svg, guard bool) error {
	tables, err := measure(p, strings.Split(only, ","))
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "\t")
		err = e.Encode(tables)
	} else {
		err = writeMarkdown(os.Stdout, tables)
	}
	if err == nil && svg {
		err = drawCharts("../docs", tables)
	}
	if err == nil && guard {
		err = check(os.Stderr, tables)
	}
	return err
}

// measure runs the sections of those names.
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
