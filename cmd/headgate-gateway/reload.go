// This file reads the configuration anew while the gateway runs.

package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/config"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
)

// lastReload is what became of the last reload. nil is none.
type lastReload struct {
	at     time.Time
	failed bool
}

// forReadiness returns the line of /readyz, or "".
func (l *lastReload) forReadiness() string {
	switch {
	case l == nil:
		return ""
	case l.failed:
		return fmt.Sprintf("reload refused at %s\n", l.at.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("reload in force since %s\n", l.at.UTC().Format(time.RFC3339))
}

// reloader reads the configuration anew. One goroutine uses it, so one reload follows the other.
type reloader struct {
	gateway       *gateway
	args, environ []string

	files   watch.Files
	read    map[string]watch.Sum // at the last reload
	invalid bool                 // that of the last reload, which is tried again at the next look
	told    string               // the mistakes that were logged last

	successful, since prometheus.Gauge // or nil
}

func newReloader(g *gateway, args, environ []string) *reloader {
	r := &reloader{gateway: g, args: args, environ: environ, read: g.config.Origin.Files}
	if g.metrics == nil {
		return r
	}

	// These are the names of Prometheus for its own configuration.
	r.successful = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headgate_gateway_config_last_reload_successful",
		Help: "1 if the configuration that was read last is in force, 0 if it was refused.",
	})
	r.since = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headgate_gateway_config_last_reload_success_timestamp_seconds",
		Help: "When a configuration was put in force last.",
	})
	g.metrics.MustRegister(r.successful, r.since)
	r.successful.Set(1)
	r.since.SetToCurrentTime()
	return r
}

// follow reads the configuration anew at each hangup and when its files have changed, until the
// context ends.
func (r *reloader) follow(ctx context.Context, hangups <-chan os.Signal) {
	for {
		var look <-chan time.Time
		if pause := r.gateway.serving.Load().config.Watch; pause > 0 {
			look = time.After(pause)
		}

		byHangup := false
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			byHangup = true
		case now := <-look:
			// What cannot be read may be half of a file, or a certificate before its time.
			type look struct{ changed, settled bool }
			l, ok := await(ctx, r.tellSlow, func() (l look) {
				l.changed, l.settled = r.files.Look(r.read, now)
				return l
			})
			if !ok {
				return
			}
			if !l.settled || !l.changed && !r.invalid {
				continue
			}
		}

		// Both may have been ready.
		if ctx.Err() != nil {
			return
		}
		r.reload(ctx, byHangup)
	}
}

// slowRead is how long a read of files takes before people are told that it is waited for.
const slowRead = 10 * time.Second

// await calls a function that reads files and returns its result, or false if the context ends
// before. A read of a pipe, or of a file system that hangs, may never end: slow is called once, and
// the goroutine of the read is left behind when the context ends.
func await[T any](ctx context.Context, slow func(), read func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- read() }()

	late := time.After(slowRead)
	for {
		select {
		case result = <-done:
			return result, true
		case <-late:
			slow()
		case <-ctx.Done():
			return result, false
		}
	}
}

// tellSlow says that files are waited for.
func (r *reloader) tellSlow() {
	r.gateway.logger.Error("the files of the configuration are still being read, so no change of them comes into force",
		"for", slowRead.String())
}

// parsed is a configuration as it was read, or the mistakes in it.
type parsed struct {
	config config.Config
	err    error
}

// parse reads the configuration. It writes what the flag package prints to w.
func parse(args, environ []string, w io.Writer) (p parsed) {
	p.config, p.err = config.Parse(args, environ, w)
	return p
}

// reload reads the configuration and puts it in force, or nothing of it.
func (r *reloader) reload(ctx context.Context, byHangup bool) {
	g := r.gateway
	p, ok := await(ctx, r.tellSlow, func() parsed { return parse(r.args, r.environ, io.Discard) })
	if !ok {
		return
	}
	c, err := p.config, p.err
	r.read = c.Origin.Files

	before := g.serving.Load()
	var next *config.Config
	var change config.Change
	if err == nil && !byHangup {
		err = emptied(c.Origin.Files, before.config.Origin.Files)
	}
	if err == nil {
		next, change, err = c.Over(before.config)
	}
	r.invalid = err != nil
	if err == nil && len(change.Live) > 0 {
		err = g.replace(before, next)
	}

	g.last.Store(&lastReload{time.Now(), err != nil})
	r.tell(change, err, byHangup)

	// A program that rotates logs renames the file and sends the signal.
	s := g.serving.Load()
	if !byHangup || s.log == nil || s.log != before.log {
		return
	}
	if err := s.log.Reopen(); err != nil {
		g.logger.Error("the access log cannot be opened anew, so the former goes on", "error", err.Error())
		return
	}
	g.logger.Info("the access log was opened anew")
}

// emptied returns an error for a file that has lost all that it had. A disk that is full leaves
// such a file, and it would take away whom the gateway trusts.
func emptied(files, inForce map[string]watch.Sum) error {
	nothing := watch.Sum(sha256.Sum256(nil))
	for path, sum := range files {
		if was, known := inForce[path]; known && sum == nothing && was != nothing {
			return fmt.Errorf("%s is empty; if that is meant, send SIGHUP", path)
		}
	}
	return nil
}

// replace puts a configuration in force in place of what is. An error means that all is as before.
func (g *gateway) replace(before *serving, c *config.Config) error {
	s, err := g.newServing(c)
	if err == nil {
		err = g.complete(s, before)
	}
	if err != nil {
		return err
	}

	// The policies may have keys that the callers do not say any more.
	if !reflect.DeepEqual(c.Callers, before.config.Callers) {
		if err := g.engine.Rebind(s.callers.Bindings()); err != nil {
			g.closeFormer(&serving{log: s.log}, before)
			return err
		}
	}

	g.enforce(s, before)
	if before.config.Refusals == nil && c.Refusals != nil {
		g.engine.WarnOfRefusals()
	}
	return nil
}

// tell logs and measures what became of a reload, in one line.
func (r *reloader) tell(change config.Change, err error, byHangup bool) {
	logger := r.gateway.logger
	if r.successful != nil && err != nil {
		r.successful.Set(0)
	} else if r.successful != nil {
		r.successful.Set(1)
		r.since.SetToCurrentTime()
	}

	// Looks at files that are as they were have the same mistakes.
	if err != nil {
		mistakes := strings.ReplaceAll(err.Error(), "\n", "; ")
		if byHangup || mistakes != r.told {
			logger.Error("the configuration was refused, and the former stays in force", "error", mistakes)
		}
		r.told = mistakes
		return
	}
	r.told = ""

	text, level := "the configuration was read anew", slog.LevelInfo
	if change.Live == nil && change.Restart == nil {
		text += ", and nothing has changed"
	}
	var attrs []slog.Attr
	if change.Live != nil {
		attrs = append(attrs, slog.String("changed", strings.Join(change.Live, ", ")))
	}
	if change.Restart != nil {
		text, level = text+"; changed but in force after a restart: "+strings.Join(change.Restart, ", "), slog.LevelWarn
	}
	logger.LogAttrs(context.Background(), level, text, attrs...)
}
