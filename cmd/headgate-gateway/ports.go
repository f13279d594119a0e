// This file opens the ports of the configuration, each with its face.

package main

import (
	"crypto/tls"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/config"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/server"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/spoe"
	"github.com/headgate/headgate/observe/debug"
)

// openPorts opens the faces that the configuration names, and the admin port.
func (g *gateway) openPorts() error {
	c := g.config
	if len(c.Upstreams) > 0 {
		g.add("proxy", c.Listen, func(s *serving) http.Handler { return s.front })
	}
	if address := apiAddress(c); address != "" {
		g.add("api", address, func(s *serving) http.Handler { return s.api })
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

// apiAddress returns the address of forward-auth and JSON, or "". A proxy takes the main address,
// and the other faces of HTTP then have one of their own or none.
func apiAddress(c *config.Config) string {
	if len(c.Upstreams) > 0 {
		return c.APIListen
	}
	return c.Listen
}

// addSPOE adds the port that HAProxy asks.
func (g *gateway) addSPOE() error {
	s, err := spoe.New(g.engine, spoe.Options{
		Callers: g.serving.Load().callers, Log: g.events, Upgrades: g.config.Upgrades,
		MaxConns: g.config.MaxConnections,
	})
	if err != nil {
		return err
	}
	g.spoe = s
	g.ports = append(g.ports, server.Port{Name: "spoe", Address: g.config.SPOEListen, Service: s})
	return nil
}

// addEnvoy adds the port that Envoy asks.
func (g *gateway) addEnvoy() error {
	c := g.config
	s, err := rls.New(g.engine, rls.Options{
		Config: c.EnvoyLimits, Debit: c.EnvoyDebit, ClosedAsError: c.EnvoyClosedAsError, TLS: g.tls(),
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

// add adds a port that speaks HTTP, whose requests have the handler that is in force.
func (g *gateway) add(name, address string, face func(*serving) http.Handler) {
	c := g.config
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { face(g.serving.Load()).ServeHTTP(w, r) })
	o := g.bounds(0)
	o.TLS = g.tls()
	g.ports = append(g.ports, server.Port{
		Name: name, Address: address, TLS: c.TLS != nil, Service: server.NewHTTP(h, o), Connections: c.MaxConnections,
	})
}

// bounds returns the bounds of a port that speaks HTTP.
func (g *gateway) bounds(bodyBytes int64) server.HTTPOptions {
	c := g.config
	return server.HTTPOptions{
		HeaderBytes: c.MaxHeaderBytes, BodyBytes: bodyBytes,
		HeaderTimeout: c.HeaderTimeout, PieceTimeout: c.PieceTimeout, IdleTimeout: c.IdleTimeout,
		Log: g.events,
	}
}

// tls returns the configuration of a port, or nil. Each handshake has the certificate that is in
// force.
func (g *gateway) tls() *tls.Config {
	if g.config.TLS == nil {
		return nil
	}
	inForce := func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.serving.Load().config.TLS, nil }
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: inForce}
}

// addAdmin adds the admin port, which has no TLS and takes no bodies. It comes last, so that
// its page shows the limiters of all other ports.
func (g *gateway) addAdmin() {
	mux := http.NewServeMux()
	mux.Handle("/", g.health.Handler())
	limiters, names := g.engine.Limiters()
	mux.Handle("GET /debug/limits", &debug.Page{Limiters: limiters, Names: names})
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics, promhttp.HandlerOpts{}))

	o := g.bounds(1)
	g.ports = append(g.ports, server.Port{
		Name: "admin", Address: g.config.AdminListen, Service: server.NewHTTP(server.Bound(mux, o), o), Admin: true,
		Connections: g.config.MaxConnections,
	})
}
