package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

// settings are the checked values of the flags.
type settings struct {
	addr    string
	open    openStore
	timeout time.Duration // of the store
	rules   []limiter.Rule
}

// texts are the flags as they were written.
type texts struct {
	addr, store, key, over string
	rules                  []string
	timeout                time.Duration
}

// parse reads the command line and lists every mistake in it.
func parse(args []string) (*settings, []error) {
	var t texts
	f := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&t.addr, "addr", "127.0.0.1:8080", "address to listen on")
	f.StringVar(&t.store, "store", "memory", stores)
	f.DurationVar(&t.timeout, "timeout", redisstore.DefaultTimeout, "longest wait for Redis, from 1ms to 1m")
	f.StringVar(&t.key, "key", "ip", "ip, global or header:NAME")
	f.StringVar(&t.over, "over", "reject", "reject, wait:2s, degrade or shadow")

	f.Func("rule", `a limit such as "5/10s"; may be given several times`, func(text string) error {
		t.rules = append(t.rules, text)
		return nil
	})

	// The mistakes of flags are found before those in their values.
	if err := f.Parse(args); err != nil {
		return nil, []error{fmt.Errorf("%w; the flags are\n%s", err, usage(f))}
	}
	if f.NArg() > 0 {
		return nil, []error{fmt.Errorf("unknown argument %q", f.Arg(0))}
	}

	return t.settings()
}

func usage(f *flag.FlagSet) string {
	var b strings.Builder
	f.SetOutput(&b)
	f.PrintDefaults()
	return strings.TrimRight(b.String(), "\n")
}

// settings checks the texts and returns every mistake in them.
func (t *texts) settings() (*settings, []error) {
	s := &settings{addr: t.addr, timeout: t.timeout}
	var faults []error
	fault := func(flag string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("-%s: %w", flag, err))
		}
	}

	if _, _, err := net.SplitHostPort(t.addr); err != nil {
		fault("addr", fmt.Errorf("%q is not host:port", t.addr))
	}

	var err error
	s.open, err = parseStore(t.store)
	fault("store", err)
	if t.timeout < time.Millisecond || t.timeout > time.Minute {
		fault("timeout", fmt.Errorf("%s is not within 1ms to 1m", t.timeout))
	}

	key, err := parseKey(t.key)
	fault("key", err)
	over, err := parseOver(t.over)
	fault("over", err)

	// Rules are named by their place, as a flag has no name for them.
	if len(t.rules) == 0 {
		t.rules = []string{"5/10s"}
	}
	for i, text := range t.rules {
		limit, err := core.ParseLimit(text)
		if err != nil {
			fault("rule", oneLine(err))
			continue
		}
		s.rules = append(s.rules, limiter.Rule{Name: fmt.Sprintf("rule%d", i+1), Limit: limit, Key: key, OnLimit: over})
	}

	return s, faults
}

func parseKey(text string) (core.KeyFunc, error) {
	name, isHeader := strings.CutPrefix(text, "header:")
	switch {
	case text == "ip":
		return keyfuncs.RemoteIP, nil
	case text == "global":
		return keyfuncs.Global, nil
	case isHeader && name != "":
		return keyfuncs.Header(name), nil
	}
	return nil, fmt.Errorf("%q is none of ip, global, header:NAME", text)
}

func parseOver(text string) (limiter.Action, error) {
	switch text {
	case "reject":
		return limiter.Reject, nil
	case "degrade":
		return limiter.Degrade, nil
	case "shadow":
		return limiter.Shadow, nil
	}

	// A wait has a time.
	span, isWait := strings.CutPrefix(text, "wait:")
	d, err := time.ParseDuration(span)
	if !isWait || err != nil || d <= 0 || d > core.MaxBooking {
		return limiter.Action{},
			fmt.Errorf("%q is none of reject, degrade, shadow, wait:2s (above 0, at most 1h)", text)
	}
	return limiter.Wait(d), nil
}
