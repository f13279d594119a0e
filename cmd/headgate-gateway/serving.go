// This file makes what can change while the gateway runs.

package main

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/config"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/forwardauth"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/jsonapi"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/proxy"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/requestlog"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/server"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/upstream"
)

// apiBodyBytes bounds a request of the JSON face, which may be a batch.
const apiBodyBytes = 1 << 20

// serving is what one configuration has made. It does not change: a reload makes another, and
// requests that are under way go on with theirs.
type serving struct {
	config  *config.Config
	callers *callers.Callers

	// These are nil without a proxy, and the log also without -access-log.
	proxy    *proxy.Proxy
	upstream *upstream.Table
	log      *requestlog.Log
	front    http.Handler // with the log and the bounds of requests

	json *jsonapi.Handler // or nil
	api  http.Handler     // with forward-auth and the bounds of requests
}

// newServing begins what complete ends.
func (g *gateway) newServing(c *config.Config) (*serving, error) {
	o := c.Callers
	o.Log = g.events
	know, err := callers.New(o)
	if err != nil {
		return nil, err
	}
	return &serving{config: c, callers: know}, nil
}

// complete makes the faces of HTTP, as those of before are in force. An error leaves nothing open.
func (g *gateway) complete(s, before *serving) error {
	if apiAddress(g.config) != "" {
		if err := g.makeAPI(s, before); err != nil {
			return err
		}
	}
	if len(g.config.Upstreams) > 0 {
		return g.makeProxy(s, before)
	}
	return nil
}

// makeProxy makes the face that stands before the upstreams.
func (g *gateway) makeProxy(s, before *serving) (err error) {
	c := s.config
	if s.upstream, err = upstream.New(c.Upstreams, g.logger); err != nil {
		return err
	}

	o := proxy.Options{
		Upstreams: s.upstream, Refusals: c.Refusals, Logged: c.AccessLog != "", Upgrades: c.Upgrades,
		BodyBytes: c.MaxBodyBytes, Callers: s.callers, Log: g.events,
	}
	if before.proxy != nil {
		s.proxy = before.proxy.With(o)
	} else if s.proxy, err = proxy.New(g.engine, o); err != nil {
		return err
	}

	var h http.Handler = s.proxy
	if o.Logged {
		h = g.requests.Handler(h, s.callers.Address)
	}
	s.front = server.Bound(h, g.bounds(c.MaxBodyBytes))
	return g.openLog(s, before)
}

// openLog opens the log of requests, unless it is the one before.
func (g *gateway) openLog(s, before *serving) (err error) {
	options := func(c *config.Config) requestlog.Options {
		return requestlog.Options{Path: c.AccessLog, Combined: c.AccessLogCombined, Query: c.AccessLogQuery,
			Headers: c.AccessLogHeaders, Events: g.events}
	}

	// A check writes nothing.
	o := options(s.config)
	if o.Path == "" || s.config.Check {
		return nil
	}
	if before.log != nil && reflect.DeepEqual(o, options(before.config)) {
		s.log = before.log
		return nil
	}
	if s.log, err = requestlog.Open(o); err != nil {
		return fmt.Errorf("-access-log: %w", err)
	}
	return nil
}

// makeAPI makes the faces that answer at a path of their own: forward-auth and JSON.
func (g *gateway) makeAPI(s, before *serving) (err error) {
	c := s.config
	mux := http.NewServeMux()
	auth, err := forwardauth.New(g.engine, forwardauth.Options{
		Callers: s.callers, Log: g.events, Upgrades: c.Upgrades, Refusals: c.Refusals,
	})
	if err != nil {
		return err
	}
	mux.Handle(forwardauth.Path, auth)

	// What was answered is kept in Redis, so that each gateway knows a take that is repeated.
	o := jsonapi.Options{
		Log: g.events, Secret: c.JSONSecret, Clients: c.JSONClients, Keep: c.JSONKeep, Timeout: c.RedisTimeout,
	}
	o.Redis, o.Prefix = g.engine.Redis()
	if before.json != nil {
		s.json = before.json.With(o)
	} else if s.json, err = jsonapi.New(g.engine, o); err != nil {
		return err
	}
	mux.Handle(jsonapi.Prefix, s.json)
	s.api = server.Bound(mux, g.bounds(apiBodyBytes))
	return nil
}

// enforce puts s in force in place of before, whose requests go on.
func (g *gateway) enforce(s, before *serving) {
	if s.upstream != nil {
		s.upstream.Start(before.upstream)
	}
	g.level.Set(s.config.LogLevel)
	g.requests.Set(s.log)
	if g.spoe != nil {
		g.spoe.Trust(s.callers, s.config.Upgrades)
	}

	// New requests have all of it from here on, so what is gone can be closed.
	g.serving.Store(s)
	g.closeFormer(before, s)
}

// closeFormer closes what former has and s has not.
func (g *gateway) closeFormer(former, s *serving) {
	if former.upstream != nil {
		former.upstream.Close(s.upstream)
	}
	if former.log != nil && former.log != s.log {
		if err := former.log.Close(); err != nil {
			g.logger.Error("the access log is incomplete", "error", err.Error())
		}
	}
}
