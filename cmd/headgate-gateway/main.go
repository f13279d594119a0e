// Headgate-gateway puts the limits of headgate on a port, for services in any language and
// for sites behind other proxies.
//
// It is a reverse proxy (-upstream), or answers other proxies and programs: forward-auth and JSON
// (-listen), Envoy's rate limit service (-envoy-listen) and HAProxy's SPOE (-spoe-listen). Each is
// a face of one engine, so a caller has the same counts whichever is asked. See -h for all flags.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // for calendars, on a machine without time zones

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/collector"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/config"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/jsonapi"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/requestlog"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/server"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/spoe"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/observe/prom"
	"github.com/headgate/headgate/policy/policyyaml"
)

// example has the policies of a gateway that is started without any.
//
//go:embed limits.yaml
var example []byte

func main() {
	collector.Relax()
	s := receive()
	defer s.stop()

	err := run(s, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "headgate-gateway:", err)
		os.Exit(1)
	}
}

// signals is what the process is told.
type signals struct {
	soft, hard context.Context  // end with the first signal to end, and with the second
	hangups    <-chan os.Signal // have one for any number that have come since it was read
	stop       func()
}

// receive receives signals. From here on SIGHUP does not end the process.
func receive() signals {
	soft, first := context.WithCancel(context.Background())
	hard, second := context.WithCancel(context.Background())
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)

	// Both fit in the channel, so that a second signal is not lost while the first is handled.
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-received
		first()
		<-received
		second()
	}()
	return signals{soft, hard, hangups, func() { signal.Stop(received) }}
}

// run checks, or serves until the first signal and then ends within the time-out, or at once at
// the second. It writes answers to out, and the log to w.
func run(s signals, args, environ []string, out, w io.Writer) (err error) {
	slow := func() { fmt.Fprintln(w, "headgate-gateway: the files of the configuration are still being read") }
	p, ok := await(s.soft, slow, func() parsed { return parse(args, environ, w) })
	if !ok {
		return errors.New("a signal came before the configuration was read")
	}

	c, err := p.config, p.err
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case c.Version:
		fmt.Fprintln(out, "headgate-gateway", version())
		return nil
	case c.Settings:
		fmt.Fprint(out, config.Table())
		return nil
	}

	level := &slog.LevelVar{}
	level.Set(c.LogLevel)
	logger := newLogger(c.LogJSON, level, w)
	events := quietlog.New(logger)
	defer events.Close()
	for _, w := range c.Origin.Warnings {
		logger.Warn(w)
	}

	// The client of Redis has one logger for the whole program.
	redis.SetLogger(redisLog{events})
	g := &gateway{config: &c, level: level, logger: logger, events: events}
	if err := g.open(s.soft); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()

	// To open is to check all but the policies, which Ready reports about.
	if c.Check {
		if err := g.check(s.soft); err != nil {
			return err
		}
		fmt.Fprintln(out, "the configuration and the policies are valid")
		return nil
	}

	return serve(s, g, newReloader(g, args, environ), w)
}

// serve serves an open gateway, and reloads its configuration meanwhile. It greets on w.
func serve(s signals, g *gateway, r *reloader, w io.Writer) error {
	// No reload is under way when the parts are closed.
	follow, end := context.WithCancel(s.soft)
	var following sync.WaitGroup
	following.Go(func() { r.follow(follow, s.hangups) })
	defer func() { end(); following.Wait() }()

	return server.Run(s.soft, s.hard, server.Options{
		Ports: g.ports, Drain: g.engine, Health: g.health, Logger: g.logger,
		Times: func() (delay, timeout time.Duration) {
			c := g.serving.Load().config
			return c.ShutdownDelay, c.ShutdownTimeout
		},
		Started: func(addresses []string) { g.greet(w, addresses) },
	})
}

func newLogger(isJSON bool, level slog.Leveler, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if isJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// version returns the version that the module was released with, or the revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + " " + info.GoVersion
}

// gateway is all that runs.
type gateway struct {
	config  *config.Config          // of the start
	serving atomic.Pointer[serving] // in force

	requests requestlog.Switch
	engine   *engine.Engine
	health   *server.Health
	last     atomic.Pointer[lastReload]
	metrics  *prometheus.Registry // nil without an admin port
	level    *slog.LevelVar
	logger   *slog.Logger
	events   *quietlog.Log
	spoe     *spoe.Server // or nil
	ports    []server.Port
	closers  []func()
	example  bool // the policies are those of the example
}

// open opens the engine and all ports that the configuration names.
func (g *gateway) open(ctx context.Context) error {
	c := g.config
	s, err := g.newServing(c)
	if err != nil {
		return err
	}

	o := engine.Options{
		Apps: c.Apps, Policies: c.Policies, LastGood: c.LastGood,
		Redis: c.Redis, RedisPrefix: c.RedisPrefix, Timeout: c.RedisTimeout, CacheRefusals: c.CacheRefusals,
		Expected: c.Instances, MaxKeys: c.MaxKeys, Bindings: s.callers.Bindings(), Check: c.Check, Logger: g.logger,
	}

	// What is measured is shown on the admin port alone, so without one nothing is counted.
	if c.AdminListen != "" {
		o.Top = c.TopKeys
		g.metrics = prometheus.NewRegistry()
		m, err := prom.New(prom.Options{Registerer: g.metrics})
		if err != nil {
			return err
		}
		o.Metrics = m.Install
	}

	if c.Policies == "" && c.Redis == nil {
		if err := g.useExample(&o); err != nil {
			return err
		}
	}

	if g.engine, err = engine.Open(ctx, o); err != nil {
		return err
	}
	g.health = server.NewHealth(g.engine.Ready, func() string { return g.last.Load().forReadiness() })

	// No port listens yet: a gateway with a mistake in one of them accepts no request at all.
	err = g.complete(s, &serving{})
	if err == nil {
		g.enforce(s, &serving{})
		err = g.openPorts()
	}
	if err != nil {
		return errors.Join(err, g.close())
	}
	return nil
}

// check returns an error if a gateway that starts so would have no policies for an application,
// which is most probably misspelt. Envoy may have all its limits in a folder instead.
func (g *gateway) check(ctx context.Context) error {
	if err := g.engine.Ready(); err != nil {
		return err
	}
	unnamed, err := g.engine.Unnamed(ctx)
	if err != nil || len(unnamed) == 0 || g.config.EnvoyLimits != "" {
		return err
	}
	return fmt.Errorf("no policy names the application %s, so nothing would be limited there",
		strings.Join(unnamed, ", "))
}

// useExample makes the policies of the example those of all applications.
func (g *gateway) useExample(o *engine.Options) error {
	set, err := policyyaml.Decode(example)
	if err != nil {
		return fmt.Errorf("limits.yaml: %w", err)
	}
	for i := range set {
		set[i].Apps = o.Apps
	}
	o.Source, g.example = engine.Fixed(set), true
	g.logger.Warn("the limits of the built-in example are in force; -policies names a file of others")
	return nil
}

// close closes everything that open has opened, the last opened first.
func (g *gateway) close() error {
	if s := g.serving.Load(); s != nil {
		g.closeFormer(s, &serving{})
	}
	for i := len(g.closers) - 1; i >= 0; i-- {
		g.closers[i]()
	}
	return g.engine.Close()
}

// greet tells a person at the terminal what to try, if no policies were configured.
func (g *gateway) greet(w io.Writer, addresses []string) {
	if !g.example || g.config.LogJSON {
		return
	}

	// The first port is the proxy with an upstream, and else the port of the JSON face.
	url := "http://" + addresses[0]
	if g.ports[0].TLS {
		url = "https://" + addresses[0]
	}
	command := "curl -i " + url + "/"
	if len(g.config.Upstreams) == 0 {
		command = "curl -i " + url + jsonapi.Prefix + "take -H 'Content-Type: application/json' " +
			`-d '{"request": {"method": "GET", "path": "/", "address": "192.0.2.7"}}'`
	}
	fmt.Fprintf(w, "\n  Try:  %s\n\n", command)
}
