// This file opens the ports of the configuration, each with its face.

package main

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/forwardauth"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/jsonapi"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/proxy"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/requestlog"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/server"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/spoe"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
	"github.com/headgate/headgate/observe/debug"
)

// apiBodyBytes bounds a request of the JSON face, which may be a batch.
const apiBodyBytes = 1 << 20

// openPorts opens the faces that the configuration names, and the admin port.
func (g *gateway) openPorts() error {
	c := &g.config
	g.pages.Set(c.Refusals)

	// A proxy takes the main address, and the other faces of HTTP then have one of their own or
	// none.
	api := c.Listen
	if len(c.Upstreams) > 0 {
		api = c.APIListen
		h, err := g.proxy()
		if err != nil {
			return err
		}
		g.add("proxy", c.Listen, g.requests.Handler(h, g.callers.Address), c.MaxBodyBytes)
	}

	if api != "" {
		h, err := g.api()
		if err != nil {
			return err
		}
		g.add("api", api, h, apiBodyBytes)
	}

	if c.SPOEListen != "" {
		if err := g.addSPOE(); err != nil {
			return err
		}
	}
	if c.EnvoyListen != "" {
		if err := g.addEnvoy(); err != nil {
			return err
		}
	}

	if c.Refusals != nil {
		g.engine.WarnOfRefusals()
	}

	// The admin port is last: its page shows the limiters that the faces above have made.
	if c.AdminListen != "" {
		g.addAdmin()
	}
	return nil
}

// addSPOE adds the port that HAProxy asks.
func (g *gateway) addSPOE() error {
	s, err := spoe.New(g.engine, spoe.Options{
		Callers: g.callers, Log: g.events, Upgrades: g.config.Upgrades, MaxConns: g.config.MaxConnections,
	})
	if err != nil {
		return err
	}
	g.ports = append(g.ports, server.Port{Name: "spoe", Address: g.config.SPOEListen, Service: s})
	return nil
}

// addEnvoy adds the port that Envoy asks.
func (g *gateway) addEnvoy() error {
	c := &g.config
	s, err := rls.New(g.engine, rls.Options{
		Config: c.EnvoyLimits, Debit: c.EnvoyDebit, ClosedAsError: c.EnvoyClosedAsError, TLS: c.TLS,
	})
	if err != nil {
		return err
	}

	g.closers = append(g.closers, func() { s.Close() })
	g.ports = append(g.ports, server.Port{
		Name: "envoy", Address: c.EnvoyListen, TLS: c.TLS != nil, Service: s, Connections: c.MaxConnections,
	})
	return nil
}

// add adds a port that speaks HTTP.
func (g *gateway) add(name, address string, h http.Handler, bodyBytes int64) {
	c := &g.config
	s := server.NewHTTP(h, server.HTTPOptions{
		TLS: c.TLS, HeaderBytes: c.MaxHeaderBytes, BodyBytes: bodyBytes,
		HeaderTimeout: c.HeaderTimeout, PieceTimeout: c.PieceTimeout, IdleTimeout: c.IdleTimeout,
		Log: g.events,
	})
	g.ports = append(g.ports, server.Port{
		Name: name, Address: address, TLS: c.TLS != nil, Service: s, Connections: c.MaxConnections,
	})
}

// addAdmin adds the admin port, which has no TLS and takes no bodies. It comes last, so that
// its page shows the limiters of all other ports.
func (g *gateway) addAdmin() {
	c := &g.config
	mux := http.NewServeMux()
	mux.Handle("/", g.health.Handler())
	limiters, names := g.engine.Limiters()
	mux.Handle("GET /debug/limits", &debug.Page{Limiters: limiters, Names: names})
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics, promhttp.HandlerOpts{}))

	s := server.NewHTTP(mux, server.HTTPOptions{
		HeaderBytes: c.MaxHeaderBytes, BodyBytes: 1,
		HeaderTimeout: c.HeaderTimeout, PieceTimeout: c.PieceTimeout, IdleTimeout: c.IdleTimeout,
		Log: g.events,
	})
	g.ports = append(g.ports, server.Port{
		Name: "admin", Address: c.AdminListen, Service: s, Admin: true, Connections: c.MaxConnections,
	})
}

// proxy returns the face that stands before the upstream.
func (g *gateway) proxy() (http.Handler, error) {
	// The log is there before the proxy that completes its lines.
	c := &g.config
	if err := g.openLog(); err != nil {
		return nil, err
	}
	table, err := upstream.New(c.Upstreams, g.logger)
	if err != nil {
		return nil, err
	}
	p, err := proxy.New(g.engine, proxy.Options{
		Upstreams: table, Refusals: &g.pages, Requests: &g.requests, Upgrades: c.Upgrades, BodyBytes: c.MaxBodyBytes,
		Callers: g.callers, Log: g.events,
	})
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, p.Close)
	return p, nil
}

// openLog opens the log of requests, which is not made anew by a check.
func (g *gateway) openLog() error {
	g.closers = append(g.closers, func() {
		if l := g.requests.Set(nil); l != nil {
			if err := l.Close(); err != nil {
				g.logger.Error("the access log is incomplete", "error", err.Error())
			}
		}
	})

	// A check writes nothing.
	c := &g.config
	if c.AccessLog == "" || c.Check {
		return nil
	}
	l, err := requestlog.Open(requestlog.Options{
		Path: c.AccessLog, Combined: c.AccessLogCombined, Query: c.AccessLogQuery, Headers: c.AccessLogHeaders,
		Events: g.events,
	})
	if err != nil {
		return fmt.Errorf("-access-log: %w", err)
	}
	g.requests.Set(l)
	return nil
}

// api returns the faces that answer at a path of their own: forward-auth and JSON.
func (g *gateway) api() (http.Handler, error) {
	mux := http.NewServeMux()
	auth, err := forwardauth.New(g.engine, forwardauth.Options{
		Callers: g.callers, Log: g.events, Upgrades: g.config.Upgrades, Refusals: &g.pages,
	})
	if err != nil {
		return nil, err
	}
	mux.Handle(forwardauth.Path, auth)

	c := &g.config
	o := jsonapi.Options{
		Log: g.events, Secret: c.JSONSecret, Clients: c.JSONClients, Keep: c.JSONKeep, Timeout: c.RedisTimeout,
	}

	// What was answered is kept in Redis, so that each gateway knows a take that is repeated.
	o.Redis, o.Prefix = g.engine.Redis()
	programs, err := jsonapi.New(g.engine, o)
	if err != nil {
		return nil, err
	}
	mux.Handle(jsonapi.Prefix, programs)
	return mux, nil
}
