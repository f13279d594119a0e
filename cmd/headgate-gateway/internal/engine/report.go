// This file makes one report of all faces of an application, which are one instance.

package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/policy"
)

const (
	// maxLeftOut and maxReason bound what a report says of policies that are left out, as those
	// of a follower do.
	maxLeftOut = 20
	maxReason  = 256
)

// reports are the last reports of the faces of one application. The zero value has none.
type reports struct {
	mu sync.Mutex

	// faces are ordered by the time since when each has its version, the longest time first.
	// Guarded by mu.
	faces []faceReport
}

type faceReport struct {
	face string
	policy.Instance
}

// faceSource is the source of one face, which reports for all faces of the application.
type faceSource struct {
	policy.Source
	reporter policy.Reporter
	face     string
	reports  *reports
}

// sourceOf returns the source for a face. Redis keeps one report of a process: if each face sent
// its own, the list of instances would have what the last of them can do.
func (e *Engine) sourceOf(app, face string) policy.Source {
	reporter, ok := e.source.(policy.Reporter)
	if !ok {
		return e.source
	}
	source := &faceSource{e.source, reporter, face, e.reports[app]}
	if beside, ok := e.source.(policy.OverrideSource); ok {
		return &besideSource{source, beside}
	}
	return source
}

// besideSource is a faceSource that also has the overrides beside the policies.
type besideSource struct {
	*faceSource
	policy.OverrideSource
}

// Notify implements [policy.Notifier].
func (f *faceSource) Notify(ctx context.Context, wake func()) {
	if n, ok := f.Source.(policy.Notifier); ok {
		n.Notify(ctx, wake)
	}
}

// Report implements [policy.Reporter].
func (f *faceSource) Report(ctx context.Context, i policy.Instance) error {
	return f.reporter.Report(ctx, f.reports.join(faceReport{f.face, i}))
}

// join notes the report of a face and returns that of all faces. Its version is the one that some
// face has for longest, so the instance has a new version when all faces have it. What decides
// now is what the report says, as all faces have one store.
func (r *reports) join(report faceReport) policy.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()

	at := slices.IndexFunc(r.faces, func(f faceReport) bool { return f.face == report.face })
	switch {
	case at >= 0 && r.faces[at].Version == report.Version:
		r.faces[at] = report
	case at >= 0:
		r.faces = append(slices.Delete(r.faces, at, at+1), report)
	default:
		r.faces = append(r.faces, report)
	}

	all := report.Instance
	all.Version, all.Refused, all.Error = r.faces[0].Version, "", ""
	if at := slices.IndexFunc(r.faces, func(f faceReport) bool { return f.Refused != "" }); at >= 0 {
		all.Refused, all.Error = r.faces[at].Refused, r.faces[at].Error
	}

	all.Can = common(r.faces)
	all.LeftOut, all.MoreLeftOut = leftOut(r.faces)
	return all
}

// common returns what all faces can do, or nil if that is not known of one.
func common(faces []faceReport) *policy.Abilities {
	all := policy.Abilities{User: true, Prefixes: true, Proxies: true, Claims: true}
	for n, f := range faces {
		if f.Can == nil {
			return nil
		}
		all.User, all.Prefixes = all.User && f.Can.User, all.Prefixes && f.Can.Prefixes
		all.Proxies, all.Claims = all.Proxies && f.Can.Proxies, all.Claims && f.Can.Claims

		lacks := func(plan string) bool { return !slices.Contains(f.Can.Plans, plan) }
		if n == 0 {
			all.Plans = slices.Clone(f.Can.Plans)
		}
		all.Plans = slices.DeleteFunc(all.Plans, lacks)
	}
	return &all
}

// leftOut returns the policies that some face leaves out, by name, and how many more there are. If
// no version of a policy applies to one face, that is what is said of it. The number is exact
// unless a face has more of them than its report names, and never too large.
func leftOut(faces []faceReport) (list []policy.LeftOut, more int) {
	by := map[string][]string{} // the faces, by policy
	most := 0
	for _, f := range faces {
		most = max(most, len(f.LeftOut)+f.MoreLeftOut)
		for _, l := range f.LeftOut {
			by[l.Policy] = append(by[l.Policy], f.face)
			at := slices.IndexFunc(list, func(o policy.LeftOut) bool { return o.Policy == l.Policy })
			switch {
			case at < 0:
				list = append(list, l)
			case list[at].Kept && !l.Kept:
				list[at] = l
			}
		}
	}

	slices.SortFunc(list, func(a, b policy.LeftOut) int { return cmp.Compare(a.Policy, b.Policy) })
	most = max(most, len(list))
	list = list[:min(len(list), maxLeftOut)]

	// A policy that other faces carry out has the names of those that do not.
	for n := range list {
		l := &list[n]
		if some := by[l.Policy]; len(some) < len(faces) {
			slices.Sort(some)
			l.Reason = clipped("only in " + strings.Join(some, ", ") + ": " + l.Reason)
		}
	}
	return list, most - len(list)
}

// clipped returns at most maxReason bytes of a text.
func clipped(text string) string {
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason-len("…")], "") + "…"
}
