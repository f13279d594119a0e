package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// writeDocs writes benchmarks.md, charts into the folder bench beside it, and the table of speed
// into README.md of the folder above. The page has the command with its flags.
func writeDocs(dir, flags string, tables []Table) error {
	if err := drawCharts(filepath.Join(dir, "bench"), tables); err != nil {
		return err
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, intro, flags, machine())

	// A chart without figures has no file that the page could show.
	for _, c := range charts {
		if c.draw(tables) != "" {
			fmt.Fprintf(&b, "![%s](bench/%s)\n\n", c.title, c.file)
		}
	}

	if err := writeMarkdown(&b, tables); err != nil {
		return err
	}

	fmt.Fprintf(&b, "## Versions\n\n%s", versions())
	if err := os.WriteFile(filepath.Join(dir, "benchmarks.md"), b.Bytes(), 0o644); err != nil {
		return err
	}
	return writeReadme(filepath.Join(dir, "..", "README.md"), b.String())
}

const intro = `# Benchmarks

For those who compare. One command writes the page with its charts:

` + "```" + `sh
go -C bench run . %s-docs ../docs
` + "```" + `

%s

How to read the tables:

* Ratios between rows carry over to other machines; the figures do not. The contenders take turns, in an order that
  changes, and each figure is the median of its turns.
* All have one rule and the same keys, each time in a text of its own, as in real requests, so no
  limiter recognises a key by its address. Quotas are so wide that no request is refused, or so narrow that all are. A
  contender with another answer than the work expects is reported as failed.
* Before its time is measured, each has to pass an exam: of five requests for either of two keys under a limit of three,
  it admits the first three. An asterisk marks those that pass and are known not to be exact: httprate estimates a
  count from two windows, and gin-rate-limit may admit two requests at once for one unit.
* Redis runs on the same machine, so its work and that of its clients add up. PING and a script that does nothing
  are not limiters: they bound what a limiter can reach.
* Far from Redis, all go through one proxy, which hands on what it reads after half of the round trip. The clients have
  their own defaults: those on go-redis use at most ten connections for each processor.
* HTTP requests come from 1000 addresses, one after the other, without a network. ns count the time of all processors,
  with the garbage collector. *added* is *allowed* less the framework without a limiter. *refused* is the whole request;
  every limiter writes its own default answer: headgate a problem body and at most seven headers, most others a short
  text. Fiber's own answers with Retry-After and 17 bytes; the last table about Fiber has headgate do the same, and send
  a Cache-Control.
* The first table has the goals, each measured in short turns of its own, so its ratios differ a little from those of
  the other tables. ` + "`go -C bench run . -guard`" + ` measures it alone.
* In memory, *headgate* is its store. *Limiter.Allow* and *Limiter.Take* ask a limiter with rules in front of it: the
  first returns a decision, the second a result whose units can be refunded. go-limiter has no rules: for two, two of its
  stores are asked, and what the first has charged stays charged when the second refuses.
* By default headgate sends five headers of two styles. *X-RateLimit only* means the three that most others send. Where
  headgate is alone in a table, its peers for that framework send headers always, or never.

`

// machine describes the machine and the programs behind the figures.
func machine() string {
	return fmt.Sprintf("The figures below are from %d processors of the kind %s, %s/%s, %s, %s.",
		runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH,
		strings.Replace(runtime.Version(), "go", "Go ", 1), redisVersion())
}

// processor returns the model, where the system reports it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "without a Redis server"
	}
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			return "Redis " + v
		}
	}
	return "a Redis server"
}

// compared are the modules whose versions matter.
var compared = []string{
	"github.com/JGLTechnologies/gin-rate-limit", "github.com/didip/tollbooth/v8", "github.com/failsafe-go/failsafe-go",
	"github.com/gin-gonic/gin", "github.com/go-chi/httprate", "github.com/go-redis/redis_rate/v10", "github.com/gofiber/fiber/v2",
	"github.com/labstack/echo/v4", "github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/sethvargo/go-limiter",
	"github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "golang.org/x/time",
}

func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "bench/go.mod names them.\n"
	}
	var b strings.Builder
	b.WriteString("| module | version |\n|---|---|\n")
	for _, m := range info.Deps {
		if slices.Contains(compared, m.Path) {
			fmt.Fprintf(&b, "| %s | %s |\n", m.Path, m.Version)
		}
	}
	return b.String()
}
