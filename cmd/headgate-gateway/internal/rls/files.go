// This file makes limiters of the domains of a folder.

package rls

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls/limitfile"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// fileDomain is a domain of the folder.
type fileDomain struct {
	limiter *limiter.Limiter
	limits  atomic.Pointer[limitfile.Domain]
}

// useFiles puts the limits of the folder in force.
func (s *Server) useFiles(c *limitfile.Config) error {
	old := *s.files.Load()
	next := map[string]*fileDomain{}
	for _, name := range c.Domains() {
		d, err := s.useDomain(old[name], c.Domain(name))
		if err != nil {
			return fmt.Errorf("the domain %q: %w", name, err)
		}
		next[name] = d
	}

	// Calls that have looked up a domain before may still use its limiter: a closed limiter refuses
	// only those that wait.
	s.files.Store(&next)
	gone := maps.Clone(old)
	maps.DeleteFunc(gone, func(name string, _ *fileDomain) bool { return next[name] != nil })
	for _, d := range gone {
		_ = d.limiter.Close()
	}
	return nil
}

// useDomain puts the limits of a domain in force, which old is, if there is one.
func (s *Server) useDomain(old *fileDomain, domain *limitfile.Domain) (*fileDomain, error) {
	d := old
	if d == nil {
		l, err := limiter.New(limiter.Config{
			Store: s.engine.Store(), Headers: s.options.Headers, Observer: shadows{s.log}, Logger: s.engine.Logger(),
		})
		if err != nil {
			return nil, err
		}
		d = &fileDomain{limiter: l}
	}

	if err := d.limiter.SetSelectedRules(rulesOf(domain), selection(domain)); err != nil {
		return nil, err
	}

	// The rules come first: a call that finds the new limits finds their rules.
	d.limits.Store(domain)
	return d, nil
}

// rulesOf returns a rule for each limit, in that order, and one more for the limits that
// come with calls.
func rulesOf(domain *limitfile.Domain) []limiter.Rule {
	rules := make([]limiter.Rule, 0, len(domain.Limits)+1)
	for _, l := range domain.Limits {
		rules = append(rules, limiter.Rule{
			Name: l.Rule, Limit: l.Limit, Key: foundKey, OnLimit: actionOf(l), DenyStatus: 429,
		})
	}
	placeholder := core.MustParseLimit("1/1s fixed-window aligned") // in place of which each request has its own
	return append(rules, limiter.Rule{Name: domain.OverrideRule(), Limit: placeholder, Key: foundKey, DenyStatus: 429})
}

func actionOf(l *limitfile.Limit) limiter.Action {
	switch {
	case l.Shadow:
		return limiter.Shadow
	case l.QuotaMode:
		return limiter.Degrade // alone it refuses nothing
	}
	return limiter.Reject
}

// foundKey returns the key under which a descriptor is counted.
func foundKey(r core.Request) (string, bool) { return r.(*described).key, true }

// selection returns the one rule for a descriptor. The call may have looked the limit up in
// the domain before a change, so it is looked up again then.
func selection(domain *limitfile.Domain) limiter.Selection {
	return func(r core.Request, into []int) []int {
		d := r.(*described)
		if d.override {
			return append(into, len(domain.Limits))
		}

		if d.limit == nil || d.empty {
			return into
		}

		if d.domain != domain {
			d.find(domain, nil)
		}

		if d.limit == nil || d.limit.Unlimited {
			return into
		}
		return append(into, d.limit.Place)
	}
}

// find looks up the limit of the descriptor. It uses the memory of entries.
func (d *described) find(domain *limitfile.Domain, entries []limitfile.Entry) []limitfile.Entry {
	for _, e := range d.entries {
		entries = append(entries, limitfile.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}

	var buffer [128]byte
	var key []byte
	d.domain = domain
	if d.override {
		key = limitfile.AppendKey(buffer[:0], entries)
	} else {
		d.limit, key = domain.Find(entries, buffer[:0])
	}

	d.key = string(key)
	return entries[:0]
}

// shadows logs what limits in shadow mode would have refused.
type shadows struct{ log *quietlog.Log }

// Observe implements [events.Observer].
func (s shadows) Observe(_ context.Context, r *events.Request) {
	for i := range r.Rules {
		if r.Rules[i].Verdict == events.ShadowRefused {
			s.log.Record(slog.LevelInfo, "a limit in shadow mode would have refused a request: "+r.Rules[i].Name)
		}
	}
}
