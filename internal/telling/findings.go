package telling

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/findings"
)

// maxSeen is the maximum number of codes that are reported.
const maxSeen = 64

// Findings logs one finding of each code, and keeps them. It is made by NewFindings, and is safe
// for concurrent use.
type Findings struct {
	log  *Log
	seen atomic.Pointer[map[string]bool] // the codes, replaced as a whole

	mu   sync.Mutex
	list []findings.Found // guarded by mu; their number is bounded by maxSeen
}

// NewFindings returns Findings without any.
func NewFindings(log *Log) *Findings {
	f := &Findings{log: log}
	f.seen.Store(&map[string]bool{})
	return f
}

// Has reports whether the code was reported before, or is not to be reported.
func (f *Findings) Has(code string) bool { return f.log.Off() || (*f.seen.Load())[code] }

// Add logs a finding, unless one with its code was logged before.
func (f *Findings) Add(one core.Finding) {
	if f.Has(one.Code) || !f.markSeen(one.Code) {
		return
	}

	f.mu.Lock()
	f.list = append(f.list, findings.Found{Finding: one, At: time.Now()})
	f.mu.Unlock()

	attrs := []slog.Attr{slog.String("code", one.Code)}
	if one.Rule != "" {
		attrs = append(attrs, slog.String("rule", one.Rule))
	}
	if page := findings.Page(one.Code); page != "" {
		attrs = append(attrs, slog.String("see", page))
	}
	f.log.Write(slog.LevelWarn, one.Text, attrs...)
}

// markSeen reports whether this is the first finding with the code.
func (f *Findings) markSeen(code string) bool {
	for {
		known := f.seen.Load()
		if (*known)[code] || len(*known) >= maxSeen {
			return false
		}
		next := maps.Clone(*known)
		next[code] = true
		if f.seen.CompareAndSwap(known, &next) {
			return true
		}
	}
}

// List returns the findings that were logged, in their order.
func (f *Findings) List() []findings.Found {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}
