package engine

import (
	"context"
	"log/slog"
	"sync"

	"github.com/headgate/headgate/internal/findinglog"
	"github.com/headgate/headgate/observe/findings"
)

// wordings are findings of limiters in the words of the gateway.
var wordings = map[string]string{
	findings.Unheeded: "a peer forwards the address of a caller, but the policy counts by the address of that peer: " +
		"if it is a proxy, all of its callers share one limit, and -trusted-proxy has to name it; " +
		"a client may send such a header too, and then this is as it should be",
	findings.OneKey: "the first 1000 requests all had one key: if they came through a proxy, it has to forward " +
		"the addresses of callers, and -trusted-proxy has to name it; " +
		"if one count for all is meant, write the key global",
	findings.NoAddress: "the policy counts by the address of the peer, and a request has none: " +
		"all such callers share its limit; the proxy that asks has to tell the address of the client",
}

// newLogger returns the logger of the engine. Every face follows the policies of an
// application by itself, and what it warns of in a version is logged once.
func newLogger(l *slog.Logger) *slog.Logger {
	return slog.New(once{findinglog.New(l.Handler(), wordings), &loggedVersions{}})
}

// once passes on a warning about a version of an application's policies only the first time.
type once struct {
	slog.Handler
	logged *loggedVersions
}

// loggedVersions holds, for each application and text, the version that was warned of last.
type loggedVersions struct {
	mu       sync.Mutex
	versions map[[2]string]string // Guarded by mu.
}

// Handle implements [slog.Handler].
func (o once) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && o.logged.before(r) {
		return nil
	}
	return o.Handler.Handle(ctx, r)
}

// before reports whether the text was logged before for the same version. If not, it now was.
func (l *loggedVersions) before(r slog.Record) bool {
	var app, version string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "app":
			app = a.Value.String()
		case "version":
			version = a.Value.String()
		}
		return true
	})

	// Only what is about a version of an application is repeated by each face.
	if app == "" || version == "" {
		return false
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	about := [2]string{app, r.Message}
	if l.versions[about] == version {
		return true
	}
	if l.versions == nil {
		l.versions = map[[2]string]string{}
	}
	l.versions[about] = version
	return false
}

// WithAttrs implements [slog.Handler].
func (o once) WithAttrs(attrs []slog.Attr) slog.Handler {
	return once{o.Handler.WithAttrs(attrs), o.logged}
}

// WithGroup implements [slog.Handler].
func (o once) WithGroup(name string) slog.Handler { return once{o.Handler.WithGroup(name), o.logged} }
