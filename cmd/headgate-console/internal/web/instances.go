package web

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// fleetView is what the instances report.
type fleetView struct {
	Away     bool   // Redis does not answer
	Label    string // of the published version
	Shown    []instance
	All      int
	Current  int // that run the published version
	Troubled int // that need attention

	WrongClocks, Alone, Asking, Leaving int // that are as these say

	leaving map[string]int // those that run the published version without a policy, by its name
}

// Further returns how many instances are not shown.
func (f fleetView) Further() int { return f.All - len(f.Shown) }

// maxTrouble is the largest number of instances that the line of all instances tells about.
const maxTrouble = 5

// Trouble returns the first instances that need attention.
func (f fleetView) Trouble() []instance { return f.Shown[:min(f.Troubled, len(f.Shown), maxTrouble)] }

// instance is a program that follows the policies.
type instance struct {
	policy.Instance
	Current bool // runs the published version
}

// wrongClock is how far a clock is off before the page warns of it.
const wrongClock = time.Second

// silent is the age from which on the page shows how old a report is.
const silent = 5 * time.Second

// LeavesOut says how many policies the instance leaves out, or "".
func (i instance) LeavesOut() string {
	n := len(i.LeftOut) + i.MoreLeftOut
	switch {
	case n == 0:
		return ""
	case len(i.LeftOut) == 1 && n == 1:
		return "leaves out " + i.LeftOut[0].Policy
	}
	return "leaves out " + digits(int64(n)) + " policies"
}

// Off says how far the clock of the instance is off, or "".
func (i instance) Off() string {
	switch d := i.ClockOffset.Round(100 * time.Millisecond); {
	case d >= wrongClock:
		return d.String() + " ahead"
	case d <= -wrongClock:
		return (-d).String() + " behind"
	}
	return ""
}

// Silent says for how long the instance has not reported, or "".
func (i instance) Silent() string {
	if i.Age < silent {
		return ""
	}
	return i.Age.Truncate(time.Second).String()
}

// Wrong says what is not as it should be with the instance.
func (i instance) Wrong() string {
	var list []string
	if i.Refused != "" {
		list = append(list, strings.TrimSpace("refuses version "+i.Refused+": "+i.Error))
	} else if !i.Current {
		list = append(list, "not yet up to date")
	}
	if off := i.Off(); off != "" {
		list = append(list, "its clock is "+off)
	}
	if i.Alone() {
		list = append(list, "decided by "+i.Decides())
	}
	if out := i.LeavesOut(); out != "" {
		list = append(list, out)
	}
	return strings.Join(list, "; ")
}

// Decides says what decides for the instance.
func (i instance) Decides() string {
	return cmp.Or(vocabulary.Decides[i.Store], vocabulary.Decides[""])
}

// Alone reports whether the instance decides without its store.
func (i instance) Alone() bool { return i.Store == "local" || i.Store == "open" || i.Store == "closed" }

// troubled reports whether the instance needs attention.
func (i instance) troubled() bool {
	return !i.Current || i.Off() != "" || i.Alone() || i.LeavesOut() != ""
}

// without counts the instances that leave out a policy as such in which it is not in force.
func (f *fleetView) without(name string) { f.Current -= f.leaving[name] }

// count adds an instance to the numbers of those that are as it is.
func (f *fleetView) count(i instance) {
	for _, c := range []struct {
		number *int
		is     bool
	}{
		{&f.Troubled, i.troubled()}, {&f.WrongClocks, i.Off() != ""}, {&f.Alone, i.Alone()},
		{&f.Asking, i.Store == "store"}, {&f.Leaving, i.LeavesOut() != ""},
	} {
		if c.is {
			*c.number++
		}
	}
}

// maxInstances is the largest number of instances that are shown.
const maxInstances = 50

// fleetView reads the instances from Redis: of applications, or without any of all in which the
// actor has a role. Those that need attention come first.
func (r *request) fleetView(apps ...string) (f fleetView, err error) {
	if r.Fleet == nil {
		return f, nil
	}

	ctx := r.req.Context()
	list, err := r.Service.Instances(ctx, r.actor, "")
	if err != nil && !errors.Is(err, service.ErrNoFleet) {
		return f, err
	}
	label, err2 := r.Fleet.Version(ctx)

	// A page without the instances says more than an error: all else on it comes from the database.
	if err := cmp.Or(err, err2); err != nil {
		r.Logger.WarnContext(ctx, "the instances cannot be read", "error", err)
		return fleetView{Away: true}, nil
	}

	f.Label, f.leaving = label, map[string]int{}
	for _, i := range list {
		if len(apps) > 0 && !slices.Contains(apps, i.App) {
			continue
		}

		seen := instance{i, i.Version == label && i.Refused == ""}
		f.Shown = append(f.Shown, seen)

		if seen.Current {
			f.Current++
			for _, l := range i.LeftOut {
				f.leaving[l.Policy]++
			}
		}
		f.count(seen)
	}

	// Those that need attention come first, so that none of them is cut off for one that needs
	// none.
	f.All = len(f.Shown)
	slices.SortStableFunc(f.Shown, func(a, b instance) int {
		rank := map[bool]int{true: 0, false: 1}
		return cmp.Compare(rank[a.troubled()], rank[b.troubled()])
	})

	f.Shown = f.Shown[:min(maxInstances, f.All)]
	return f, nil
}
