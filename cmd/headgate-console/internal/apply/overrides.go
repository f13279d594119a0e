package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// hasOverrides reports whether a file has overrides, by its name: overrides.json, or one that ends
// in .overrides.json.
func hasOverrides(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	return name == "overrides.json" || strings.HasSuffix(name, ".overrides.json")
}

// addOverrides reads a file of overrides.
func (r *reader) addOverrides(path string, data []byte) {
	if len(data) > service.MaxOverridesFile {
		r.errs = append(r.errs, fmt.Errorf("%s has more than %d bytes", path, service.MaxOverridesFile))
		return
	}
	set, err := service.DecodeOverrides(data)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", path, err))
		return
	}

	if r.overrides == nil {
		r.overrides = service.OverrideSet{}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if first, exists := r.overridesIn[name]; exists {
			r.errs = append(r.errs, fmt.Errorf("%s: policy %q has overrides in %s too", path, name, first))
			continue
		}
		r.overrides[name], r.overridesIn[name] = set[name], path
	}
}

// overridesPlan is what an import of overrides changes, as the API answers.
type overridesPlan struct {
	service.OverridesPlan
	Changes int `json:"changes"`

	// Later are the policies of the files that are written first, and whose overrides are compared
	// then.
	Later []string `json:"-"`
}

func (o *overridesPlan) changesAnything() bool { return o != nil && o.Changes+len(o.Later) > 0 }

// overridesBefore returns what the overrides of the files change, while the policies are not
// written. Those of policies that p changes fit the policies as they will be, or are a mistake. It
// returns nil if the files have none.
func (w *worker) overridesBefore(ctx context.Context, p *plan) (*overridesPlan, error) {
	if w.reader.overrides == nil {
		return nil, nil
	}

	set, later := maps.Clone(w.reader.overrides), []string(nil)
	var errs []error
	for _, s := range p.Steps {
		if _, has := set[s.Name]; !has || s.Action == keep {
			continue
		}
		errs = append(errs, w.checkOverrides(s.Name, s.Action == create))
		delete(set, s.Name)
		later = append(later, s.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	over, err := w.sendOverrides(ctx, set, "", "api", "overrides", "plan")
	if err != nil {
		return nil, err
	}
	over.Later = later
	return over, nil
}

// checkOverrides returns the mistakes in the overrides of a policy as it is in the files. isNew
// means that the console does not have it yet.
func (w *worker) checkOverrides(name string, isNew bool) error {
	i := slices.IndexFunc(w.reader.set, func(p policy.Policy) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("%s: policy %q has overrides and is to be deleted", w.reader.overridesIn[name], name)
	}

	var errs []error
	p, set := &w.reader.set[i], w.reader.overrides[name]
	for i, key := range slices.Sorted(maps.Keys(set)) {
		o, err := policy.ParseOverride(string(set[key]))
		if now := time.Now(); err == nil && !o.Ended(now) {
			err = p.CheckOverride(key, o)

			// One that the console has already may stay, and a policy that is new has none there.
			if err == nil && isNew && o.Bans(now) {
				_, err = service.CheckBanBeside(p, key, o.BannedUntil, now)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: policy %q: %s: %w", w.reader.overridesIn[name], name,
				policy.OverrideField(p.Key, key, i), err))
		}
	}
	return errors.Join(errs...)
}

// sendOverrides sends overrides to a path of the API, and returns the plan.
func (w *worker) sendOverrides(
	ctx context.Context, set service.OverrideSet, base string, path ...string,
) (*overridesPlan, error) {
	body, err := json.Marshal(map[string]any{"overrides": set})
	if err != nil {
		return nil, err
	}

	q := url.Values{}
	if w.pruneOverrides {
		q.Set("missing", "remove")
	}
	if w.apps != nil {
		q.Set("apps", strings.Join(w.apps, ","))
	}
	switch plan := path[len(path)-1] == "plan"; {
	case plan && w.command == diff:
		q.Set("compare", "yes")
	case !plan:
		q.Set("base", base)
		if w.comment != "" {
			q.Set("comment", w.comment)
		}
	}

	var over overridesPlan
	err = w.console.send(ctx, body, q, &over, path...)
	return &over, placed(err, func(policy, _ string) string { return w.reader.overridesIn[policy] })
}

var errOverridesConflict = errors.New(
	"the overrides were changed in the console since the plan was made: none of them was written; run it again")

// carryOutOverrides makes the changes of a plan, if there is one, and prints how many. A dry run
// makes none.
func (w *worker) carryOutOverrides(ctx context.Context, over *overridesPlan, printed *printer) error {
	if over == nil || w.dryRun {
		return nil
	}

	// Now that the policies are written, the plan is whole.
	if len(over.Later) > 0 {
		whole, err := w.sendOverrides(ctx, w.reader.overrides, "", "api", "overrides", "plan")
		if err != nil {
			return err
		}
		over = whole
	}
	if over.Changes == 0 {
		return nil
	}

	done, err := w.sendOverrides(ctx, w.reader.overrides, over.Digest, "api", "overrides")
	if isMoved(err) {
		return errOverridesConflict
	}
	if err != nil {
		return w.withUnknownOutcome(err, "overrides", "override")
	}
	for _, c := range done.Policies {
		if c.Set+c.Removed > 0 {
			printed.writeLine("overrides  %s: %d set, %d removed", c.Policy, c.Set, c.Removed)
		}
	}
	return nil
}

// overrides writes what a plan of overrides changes: the numbers of each policy, and the first
// changes.
func (p *printer) overrides(over *overridesPlan) {
	if over == nil {
		return
	}

	// The steps are in the order of the policies.
	steps := over.Steps
	for _, c := range over.Policies {
		if c.Set+c.Removed == 0 {
			continue
		}
		p.writeLine("overrides of %s: %d to set, %d to remove, %d unchanged, %d in the console alone, %d ended",
			c.Policy, c.Set, c.Removed, c.Unchanged, c.Missing, c.Ended)

		for ; len(steps) > 0 && steps[0].Policy == c.Policy; steps = steps[1:] {
			p.change(steps[0].Key, steps[0].Before, steps[0].After)
		}
	}

	if more := over.Changes - len(over.Steps); more > 0 {
		p.writeLine("  and %d more", more)
	}

	// A ban ends by a lift alone, so the files do not undo it.
	for _, c := range over.Policies {
		if c.Kept > 0 {
			p.writeLine("overrides of %s: %d that stay banned, though the files have no ban or a shorter one",
				c.Policy, c.Kept)
		}
	}
	for _, name := range over.Later {
		p.writeLine("overrides of %s: compared once the policy is written", name)
	}
}
