// This file finds out what a configuration changes in a gateway that runs.

package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
)

// live says when a change of a setting is in force.
type live uint8

const (
	restart   live = iota // after a restart
	atOnce                // at once
	withProxy             // at once, unless the proxy begins or ends with it
	withTLS               // at once, unless TLS begins or ends with it
)

// String is the text of the table.
func (l live) String() string {
	if l == restart {
		return "restart"
	}
	return "at once"
}

// Change has the names of settings that have changed, in the order of the usage.
type Change struct {
	Live    []string // those that can change while the gateway runs
	Restart []string // those that are in force after a restart
}

// Over returns the configuration of a gateway that runs and gets c: its Live part is that of c, and
// the rest stays. A setting that waits for a restart is in every Change until then. The error names
// what is a mistake in the gateway that runs alone, such as a certificate that has expired.
func (c *Config) Over(running *Config) (*Config, Change, error) {
	isProxy := func(c *Config) bool { return len(c.Upstreams) > 0 }
	sameProxy, sameTLS := isProxy(c) == isProxy(running), (c.TLS == nil) == (running.TLS == nil)

	// Parts that begin or end need a restart.
	next := *running
	next.Live, next.Origin = c.Live, c.Origin
	if !sameProxy {
		next.Proxied = running.Proxied
	}
	if !sameTLS {
		next.TLS = running.TLS
	}

	// The baseline of each setting is the value that is in force.
	var change Change
	next.Origin.values = maps.Clone(running.Origin.values)
	for _, s := range new(given).settings() {
		switch value := c.Origin.values[s.name]; {
		case value == running.Origin.values[s.name]:
		case s.live == restart, s.live == withProxy && !sameProxy, s.live == withTLS && !sameTLS:
			change.Restart = append(change.Restart, s.name)
		default:
			change.Live = append(change.Live, s.name)
			next.Origin.values[s.name] = value
		}
	}

	// A former certificate that has expired by now is no reason to refuse other changes.
	if next.TLS != nil && !isSameCertificate(next.TLS, running.TLS) {
		if err := checkTime(next.TLS, time.Now()); err != nil {
			return nil, change, err
		}
	}

	// The ports are those that are open, which c may not know.
	return &next, change, next.checkLoops()
}

// values returns the digest of what each setting says, and of the files that it names.
func (g *given) values(settings []setting) map[string]watch.Sum {
	values := map[string]watch.Sum{}
	for i := range settings {
		s := &settings[i]
		if s.command || s.name == "config" { // which is what the other settings say
			continue
		}

		var files []watch.Sum
		for _, path := range g.files[s.name] {
			files = append(files, g.Origin.Files[path])
		}

		var items []any
		if s.list != nil {
			items = s.list.values()
		}
		values[s.name] = sha256.Sum256(fmt.Appendf(nil, "%q %#v %x", s.effective(), items, files))
	}
	return values
}

// values returns what the items say, whatever their form.
func (l *list) values() []any {
	var all []any
	for _, n := range l.items {
		var v any
		if err := yaml.NodeToValue(n, &v); err != nil {
			v = n.String()
		}
		all = append(all, v)
	}
	return all
}
