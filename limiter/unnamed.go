package limiter

import (
	"reflect"
	"runtime"
	"sync"

	"github.com/headgate/headgate/core"
)

// unnamed counts, by store, the limiters in use whose only rule has the name "default" because
// neither it nor its limiter has one: they share its counts.
var unnamed = struct {
	mu sync.Mutex
	in map[core.Store]int // guarded by mu
}{in: map[core.Store]int{}}

// noteUnnamed notes that l has a rule without a name in a store of the program's, and warns if
// another limiter has too. The note ends with the limiter.
func (l *Limiter) noteUnnamed(store core.Store) {
	unnamed.mu.Lock()
	unnamed.in[store]++
	others := unnamed.in[store] - 1
	unnamed.mu.Unlock()

	forget := sync.OnceFunc(func() {
		unnamed.mu.Lock()
		defer unnamed.mu.Unlock()
		if unnamed.in[store]--; unnamed.in[store] == 0 {
			delete(unnamed.in, store)
		}
	})
	released := l.release
	l.release = func() {
		released()
		forget()
	}
	runtime.AddCleanup(l, func(forget func()) { forget() }, forget)

	if others > 0 {
		l.Warn(core.Finding{Code: CodeSharedDefault, Rule: DefaultName, Text: "two limiters over one store have a rule without a name, " +
			"so they share its counts: give each limiter a Name, or each rule"})
	}
}

// sharesDefault reports whether the only rule of a limiter gets the default name, in a store
// that other limiters may use.
func (c *Config) sharesDefault() bool {
	return c.Store != nil && c.Name == "" && len(c.Rules) == 1 && c.Rules[0].Name == "" && reflect.TypeOf(c.Store).Comparable()
}
