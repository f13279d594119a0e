// Package live reads what the instances report from Redis, once for all who look at it. However
// many people have a page open, and however often it asks, Redis is asked about once a second. A
// [View] has what the pages show.
package live

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/collect"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// Counts is where the counts of the last minutes come from. Its methods are safe for concurrent
// use.
type Counts interface {
	collect.Source

	// Tens sets the ten seconds of minutes that Read has returned.
	Tens(ctx context.Context, app string, minutes []stats.Minute) error
}

// Reports is where the instances report. Its methods are safe for concurrent use.
type Reports interface {
	// Instances returns the instances that have reported lately.
	Instances(ctx context.Context) ([]policy.Instance, error)

	// Version returns the label of the published version.
	Version(ctx context.Context) (string, error)
}

// MinuteKeys returns the keys that a policy decided about most often in n minutes from an instant
// on.
type MinuteKeys func(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error)

// TopKeys returns the top keys of the instances of an application.
type TopKeys func(ctx context.Context, app string) (stats.Top, error)

const (
	// every is the time between two readings.
	every = time.Second

	// topEvery is the time between two readings of the top keys, which the instances write
	// every five seconds, and topStale the greatest age of those that are shown while newer
	// ones are read.
	topEvery = 5 * time.Second
	topStale = 30 * time.Second

	// keysEvery is the time between two readings of the keys of minutes that have ended.
	keysEvery = 10 * time.Second

	// overlap is how much of what was read is looked at again, for a server that took the
	// place of one whose clock was ahead.
	overlap = 10 * time.Second

	// timeout bounds a reading.
	timeout = 10 * time.Second
)

// View is what the instances report, for display. It is safe for concurrent use. The caller must
// call Close.
type View struct {
	counts    Counts
	minutes   *Shared[string, window]
	instances *Shared[struct{}, []policy.Instance]
	version   *Shared[struct{}, string]
	top       *Shared[string, stats.Top]
	keys      *Shared[minutesOf, []topkeys.Summary]
}

// minutesOf are minutes of a policy.
type minutesOf struct {
	app, policy string
	from        time.Time
	n           int
}

// New returns a view.
func New(counts Counts, reports Reports, top TopKeys, keys MinuteKeys) *View {
	v := &View{counts: counts}
	v.minutes = NewShared(Options[string, window]{Read: v.read, Every: every, Timeout: timeout})
	v.instances = NewShared(Options[struct{}, []policy.Instance]{Every: every, Timeout: timeout,
		Read: func(ctx context.Context, _ struct{}, _ []policy.Instance) ([]policy.Instance, error) {
			return reports.Instances(ctx)
		}})
	v.version = NewShared(Options[struct{}, string]{Every: every, Timeout: timeout,
		Read: func(ctx context.Context, _ struct{}, _ string) (string, error) { return reports.Version(ctx) }})
	v.top = NewShared(Options[string, stats.Top]{Every: topEvery, Stale: topStale, Timeout: timeout,
		Read: func(ctx context.Context, app string, _ stats.Top) (stats.Top, error) { return top(ctx, app) }})
	v.keys = NewShared(Options[minutesOf, []topkeys.Summary]{Every: keysEvery, Stale: keysEvery, Timeout: timeout,
		Read: func(ctx context.Context, m minutesOf, _ []topkeys.Summary) ([]topkeys.Summary, error) {
			return keys(ctx, m.app, m.policy, m.from, m.n)
		}})
	return v
}

// Close ends all readings. The error is nil.
func (v *View) Close() error {
	v.minutes.Close()
	v.instances.Close()
	v.version.Close()
	v.top.Close()
	v.keys.Close()
	return nil
}

// MinuteKeys returns the keys that a policy decided about most often in n minutes from an instant
// on. They must not be changed.
func (v *View) MinuteKeys(
	ctx context.Context, app, policy string, from time.Time, n int,
) ([]topkeys.Summary, error) {
	return v.keys.Get(ctx, minutesOf{app, policy, from, n})
}

// Minutes returns the counts of an application in the last [stats.Minutes] minutes by the
// server's clock, the current one last, as they were at most about a second ago. The maps in
// them must not be changed.
func (v *View) Minutes(ctx context.Context, app string) ([]stats.Minute, error) {
	w, err := v.minutes.Get(ctx, app)
	return slices.Clone(w.minutes), err
}

// Instances returns the instances that have reported lately.
func (v *View) Instances(ctx context.Context) ([]policy.Instance, error) {
	list, err := v.instances.Get(ctx, struct{}{})
	return slices.Clone(list), err
}

// Version returns the label of the published version.
func (v *View) Version(ctx context.Context) (string, error) {
	return v.version.Get(ctx, struct{}{})
}

// Top returns the top keys of an application, as they were at most half a minute ago. The lists
// of its rules must not be changed.
func (v *View) Top(ctx context.Context, app string) (stats.Top, error) {
	top, err := v.top.Get(ctx, app)
	top.Rules = slices.Clone(top.Rules)
	return top, err
}

// window has the last minutes of an application.
type window struct {
	minutes []stats.Minute
	now     time.Time // the server's clock before they were read
}

// read reads those of the last minutes that have changed since before, or that it lacks.
func (v *View) read(ctx context.Context, app string, before window) (window, error) {
	// A reading that fails leaves the window as it was: the next one asks for what changed since
	// then.
	changed, now, err := v.counts.Changed(ctx, app, before.since())
	if err != nil {
		return before, err
	}

	if now.Before(before.now) { // the server's clock was set back
		before = window{}
	}
	w := window{make([]stats.Minute, stats.Minutes), now}

	// The window moves with the clock. A minute is read if it is new in the window, or has changed.
	var wanted []time.Time
	var places []int
	for i := range w.minutes {
		start := now.Truncate(time.Minute).Add(time.Duration(i-stats.Minutes+1) * time.Minute)
		known := before.find(start)
		if known == nil || slices.ContainsFunc(changed, start.Equal) {
			wanted, places = append(wanted, start), append(places, i)
			continue
		}
		w.minutes[i] = *known
	}

	read, err := v.counts.Read(ctx, app, wanted)
	if err == nil {
		err = v.counts.Tens(ctx, app, read)
	}
	if err != nil {
		return before, err
	}

	for i, m := range read {
		w.minutes[places[i]] = m
	}

	// A minute that has not changed is as it was read before.
	for i := range w.minutes {
		w.minutes[i].Seen = now
	}
	return w, nil
}

// since returns the instant from which on changes may be missing in the window.
func (w window) since() time.Time {
	if w.now.IsZero() {
		return time.Unix(1<<40, 0) // all minutes are to be read in any case
	}
	return w.now.Add(-overlap)
}

// find returns the minute that starts at an instant, or nil.
func (w window) find(start time.Time) *stats.Minute {
	i := slices.IndexFunc(w.minutes, func(m stats.Minute) bool { return m.Start.Equal(start) })
	if i < 0 {
		return nil
	}
	return &w.minutes[i]
}
