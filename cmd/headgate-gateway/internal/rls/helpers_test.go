package rls

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/headgate/headgate/limiter"
)

const limiterXRateLimit = limiter.XRateLimit

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
