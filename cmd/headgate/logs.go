// This file opens logs, and reads them through to their end.

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
)

// logFlags are the flags of commands that read logs.
type logFlags struct {
	format  string
	reorder time.Duration
	proxies string
	users   bool
	maxKeys int
	json    bool
}

func (l *logFlags) define(f *flag.FlagSet) {
	f.StringVar(&l.format, "format", "guess", "the `format` of the logs: combined, json, envoy, alb")
	f.DurationVar(&l.reorder, "reorder", 5*time.Second, "how far lines may be out of order to be sorted")
	f.StringVar(&l.proxies, "proxies", "",
		"`networks` of proxies, whose X-Forwarded-For names the caller; commas between")
	f.BoolVar(&l.users, "user", false, "the user of the log is the one that policies by user count")
	f.IntVar(&l.maxKeys, "max-keys", 1<<20, "how many `keys` are in memory at most")
	f.BoolVar(&l.json, "json", false, "print JSON")
}

func (l *logFlags) trusted() []string {
	return strings.FieldsFunc(l.proxies, func(r rune) bool { return r == ',' || r == ' ' })
}

// logs are the logs that a command reads.
type logs struct {
	readers []*accesslog.Reader
	files   []*os.File
	size    int64 // of all files, 0 if it is not known
	read    int64
	errors  []error
}

// openLogs opens the files, of which "-" is the standard input.
func (e *env) openLogs(names []string, l *logFlags) (*logs, error) {
	format, err := accesslog.ParseFormat(l.format)
	if err != nil {
		return nil, err
	}
	if l.reorder < 0 || l.reorder > time.Hour {
		return nil, fmt.Errorf("-reorder %s is not within 0s to 1h", l.reorder)
	}

	in, known := &logs{}, true
	for _, name := range names {
		from := e.in
		if name != "-" {
			f, err := os.Open(name)
			if err != nil {
				in.close()
				return nil, err
			}
			in.files = append(in.files, f)
			from = f
		}

		// A pipe has no size, and so no time that is left.
		if f, ok := from.(*os.File); ok {
			info, err := f.Stat()
			known = known && err == nil && info.Mode().IsRegular()
			if known {
				in.size += info.Size()
			}
		} else {
			known = false
		}

		o := accesslog.Options{Format: format, Reorder: l.reorder}
		r, err := accesslog.New(name, &counter{from, &in.read}, o)
		if err != nil {
			in.close()
			return nil, err
		}
		in.readers = append(in.readers, r)
	}

	if !known {
		in.size = 0
	}

	return in, nil
}

func (l *logs) close() {
	for _, f := range l.files {
		f.Close()
	}
}

// has returns what all of the logs have whose first lines have a request. Without one, nothing is
// known of what they have.
func (l *logs) has() (has accesslog.Fields, known bool) {
	has = ^accesslog.Fields(0)
	for _, r := range l.readers {
		if s := r.Stats(); s.Sampled > 0 {
			has &= s.Has
			known = true
		}
	}
	if !known {
		has = 0
	}
	return has, known
}

// unknown says why logs cannot be replayed whose fields are not known.
const unknown = "no log has a request in its first 64 KiB, so nothing can be said"

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n *int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += int64(n)
	return n, err
}

// each calls f with each entry of all logs in the order of their times, and closes them.
func (l *logs) each(e *env, f func(*accesslog.Entry)) {
	defer l.close()
	p := progress{env: e, logs: l, start: time.Now()}
	defer p.end()

	// One log needs no merging.
	if len(l.readers) == 1 {
		for {
			entry, err := l.readers[0].Next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					s := l.readers[0].Stats()
					l.errors = append(l.errors, fmt.Errorf("%s: line %d: %w", s.Name, s.Lines, err))
				}
				return
			}
			f(entry)
			p.step()
		}
	}

	// Of several the one whose next entry is the earliest is read.
	m := accesslog.Merge(l.readers)
	for {
		entry, err := m.Next()
		if err != nil {
			l.errors = append(l.errors, m.Errors...)
			return
		}
		f(entry)
		p.step()
	}
}

// progress shows on a terminal how far a command is.
type progress struct {
	env   *env
	logs  *logs
	start time.Time
	shown time.Time
	lines int64
}

// everyLines is how often the clock is read.
const everyLines = 1 << 14

// every is how often the progress is shown.
const every = 200 * time.Millisecond

func (p *progress) step() {
	if p.lines++; p.lines%everyLines != 0 || !p.env.progress {
		return
	}
	if now := time.Now(); now.Sub(p.shown) >= every {
		p.shown = now
		fmt.Fprintf(p.env.err, "\r\x1b[K%s", p.text(now.Sub(p.start)))
	}
}

// text returns the progress after a time.
func (p *progress) text(d time.Duration) string {
	rate := float64(p.lines) / d.Seconds()
	s := fmt.Sprintf("%s requests, %s a second", count(p.lines), count(int64(rate)))
	if p.logs.size > 0 && p.logs.read > 0 {
		part := float64(p.logs.read) / float64(p.logs.size)
		left := time.Duration(float64(d) * (1 - part) / part).Round(time.Second)
		s += fmt.Sprintf(", %.0f%%, %s left", 100*part, left)
	}
	return s
}

func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.env.err, "\r\x1b[K")
	}
}

// logReport is what was found in one log.
type logReport struct {
	File      string       `json:"file"`
	Format    string       `json:"format"`
	Lines     int64        `json:"lines"`
	Requests  int64        `json:"requests"`
	Broken    int64        `json:"broken"`
	NoAddress int64        `json:"no_address"`
	Late      int64        `json:"late"`
	Shown     []brokenLine `json:"first_broken,omitempty"`
}

type brokenLine struct {
	Line int64  `json:"line"`
	Why  string `json:"why"`
	Text string `json:"text"`
}

// reports returns what was found in each log, and what follows from it for the result.
func (l *logs) reports(reorder time.Duration) (list []logReport, notes []string) {
	mixed, whole := false, false
	has, _ := l.has()
	for _, r := range l.readers {
		s := r.Stats()
		one := logReport{File: s.Name, Format: s.Format.String(), Lines: s.Lines, Requests: s.Requests,
			Broken: s.Broken, NoAddress: s.NoAddress, Late: s.Late}
		for _, b := range s.Shown {
			one.Shown = append(one.Shown, brokenLine{b.Line, b.Why, strings.ToValidUTF8(b.Text, "\ufffd")})
		}
		list = append(list, one)
		mixed = mixed || s.MixedZones
		whole = whole || s.Sampled > 0 && s.Has&accesslog.HasFractions == 0

		// What a line lacks, or where it stands, may change what is decided.
		if s.Late > 0 {
			notes = append(notes, fmt.Sprintf(
				"%s: %s more than %s out of order, and taken at the time of the line before",
				safe(s.Name), plural(s.Late, "line is", "lines are"), reorder))
		}
		if s.NoAddress > 0 && has&accesslog.HasAddress != 0 {
			notes = append(notes, fmt.Sprintf("%s: %s no address, and share one count", safe(s.Name),
				plural(s.NoAddress, "request has", "requests have")))
		}
	}

	// The resolution and the zones are those of all logs together.
	if whole {
		notes = append(notes, "times are whole seconds: the requests of one second count as if all came "+
			"at its beginning, so limits of a few seconds look stricter than they are")
	}
	if has&accesslog.HasBeginnings != 0 {
		notes = append(notes, "times are those at which requests began")
	}
	if mixed {
		notes = append(notes, "lines name different time zones; all were read as they say")
	}

	for _, err := range l.errors {
		notes = append(notes, safe(err.Error())+", so what follows in it is missing")
	}

	return list, notes
}

// sharedKeys says that requests shared limits because of -max-keys.
func sharedKeys(requests int64, maxKeys int) string {
	return fmt.Sprintf("%s of new keys shared limits, as %s were in use: raise -max-keys",
		counted(requests, "request"), counted(int64(maxKeys), "key"))
}

// printLogs prints what was found in the logs.
func printLogs(e *env, list []logReport, notes []string) {
	for _, l := range list {
		fmt.Fprintf(e.out, "%s (%s): %s in %s", safe(l.File), l.Format, counted(l.Requests, "request"),
			counted(l.Lines, "line"))
		if l.Broken > 0 {
			fmt.Fprintf(e.out, ", %s", e.paint(yellow, count(l.Broken)+" broken"))
		}
		fmt.Fprintln(e.out)

		// The first broken lines show what kind of log it may be.
		for _, b := range l.Shown {
			fmt.Fprintf(e.out, "  line %d: %s: %q\n", b.Line, b.Why, b.Text)
		}
	}

	for _, n := range notes {
		fmt.Fprintf(e.out, "note: %s\n", n)
	}
	fmt.Fprintln(e.out)
}
