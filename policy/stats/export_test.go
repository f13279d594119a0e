package stats

import (
	"context"
	"time"

	"github.com/headgate/headgate/observe/topkeys"
)

// Pause returns the time until the next write.
func (r *Recorder) Pause() time.Duration {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.pause
}

// Overdue makes the next write publish the top keys.
func (r *Recorder) Overdue() {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.top.due = time.Time{}
}

const (
	MaxTopBytes = maxTopBytes
	TopBudget   = topBudget
	MaxFields   = maxFields
)

// RepeatMinutes writes the keys of the last minute as if they had not been written.
func (r *Recorder) RepeatMinutes(ctx context.Context, rules ...topkeys.Rule) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.top.remembered = nil
	server, _ := r.clock.At(time.Now())
	r.rememberMinutes(rules, server.Sub(r.options.Clock()))
	return r.writeMinutes(ctx)
}

// MinuteKeysOf returns of how many policies one of so many recorders writes keys, how many it
// writes, and the floor of the first policy.
func MinuteKeysOf(rules []topkeys.Rule, writers int64) (policies, keys int, floor int64) {
	r := &Recorder{writers: writers}
	r.rememberMinutes(rules, 0)
	for _, m := range r.top.minutes {
		keys += len(m.keys.Keys)
	}
	return len(r.top.minutes), keys, r.top.minutes[0].keys.Floor
}

// EndTen does what is done at the end of ten seconds that ends now, so long before the next write.
func (r *Recorder) EndTen(before time.Duration) error {
	now := time.Now()
	return r.endTen(now, now.Add(before))
}
