// This file follows the overrides beside policies.

package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
)

// OverridesStatus is the state of the overrides beside the policies of a [Follower].
type OverridesStatus struct {
	// Version is that of the source, "" if it has none, and Count is how many overrides of it the
	// policies in force have.
	Version string
	Count   int

	// LeftOut is how many of the source cannot be put in force as they are, and Reason is why one
	// of them cannot. A ban stays in force without the limit of its override, and Count has it too.
	LeftOut int
	Reason  string

	// Err is the error of the last attempt to read them, or nil. What was read before stays in
	// force.
	Err error
}

// beside keeps tables of the overrides that a source has beside the policies of an application.
// Only the goroutine that polls uses it; rules look up in the tables.
type beside struct {
	follower *Follower
	source   OverrideSource // nil if the source has none
	version  string         // of the source, as far as it was applied

	present map[string]bool         // the policies that have overrides, also those of other applications
	tables  map[string]*tableBeside // of the application's policies that have some

	// snapshot is what the rules of the limiter were made of, and bound has the policies that had
	// a table then.
	snapshot Snapshot
	bound    map[string]bool
}

// tableBeside has the overrides of one policy.
type tableBeside struct {
	*table
	policy Policy // that the entries were checked with last

	// left has the overrides that are not in the table as they are, by their keys. Of one that
	// bans, the table has the ban.
	left map[string]leftOverride
}

// leftOverride is an override that is left out, or is in force with its ban alone.
type leftOverride struct {
	Override        // what could be read of it
	unread   string // why its text cannot be read, or "" if a change of the policy may make it fit
	why      string // for the status
}

func newBeside(f *Follower, source Source) *beside {
	b := &beside{follower: f, present: map[string]bool{}, tables: map[string]*tableBeside{}}
	b.source, _ = source.(OverrideSource)
	return b
}

// table returns the table of a policy for its rule, or nil if there are no overrides beside it.
// Such a policy decides as fast as if there were none beside any.
func (b *beside) table(policy string) *table {
	if t := b.tables[policy]; t != nil {
		return t.table
	}
	return nil
}

// follow brings the tables up to date: those of the policies in force, and of those of the
// application that the source has now.
func (b *beside) follow(ctx context.Context, now Set) {
	if b.source == nil {
		return
	}

	wanted := make(map[string]*Policy, len(now))
	for name, p := range b.follower.before {
		wanted[name] = &p
	}
	for i := range now {
		wanted[now[i].Name] = &now[i]
	}

	// What was read before an error stays.
	err := b.sync(ctx, wanted)
	if ctx.Err() == nil {
		b.setStatus(err)
	}
}

// sync applies what has changed in the source.
func (b *beside) sync(ctx context.Context, wanted map[string]*Policy) (err error) {
	defer guard("a method of the source of overrides", &err)
	changes, err := b.changes(ctx)
	if err != nil {
		return err
	}

	missing := b.missing(changes)
	b.apply(changes.Changes, missing)
	for name, p := range wanted {
		if missing[name] {
			if err := b.load(ctx, p); err != nil {
				return err
			}
		}
	}

	// A rule in force may have the table of a policy that has no overrides any more.
	for name, t := range b.tables {
		switch p := wanted[name]; {
		case p == nil:
			delete(b.tables, name)
		case !b.present[name]:
			t.replace(nil)
		case !reflect.DeepEqual(&t.policy, p):
			t.policy = *p
			t.checkAll()
		}
	}
	b.version = changes.Version
	return nil
}

// missing notes which policies have overrides after the changes, and returns those whose overrides
// have to be read as a whole.
func (b *beside) missing(changes OverrideChanges) map[string]bool {
	missing := map[string]bool{}
	if changes.Missed {
		b.present = map[string]bool{}
		for _, name := range changes.Stale {
			missing[name], b.present[name] = true, true
		}
		for _, name := range changes.Same {
			b.present[name] = true
		}
	}

	// A policy that is new to the application may have had overrides before.
	for name := range b.present {
		missing[name] = missing[name] || b.tables[name] == nil
	}
	for _, c := range changes.Changes {
		b.present[c.Policy] = c.Key != ""
		missing[c.Policy] = missing[c.Policy] || b.tables[c.Policy] == nil && c.Key != ""
	}
	return missing
}

func (b *beside) changes(ctx context.Context) (OverrideChanges, error) {
	ctx, cancel := context.WithTimeout(ctx, b.follower.options.timeout())
	defer cancel()
	return b.source.OverrideChanges(ctx, b.version)
}

// apply applies changes, but for those of policies whose overrides are read as a whole.
func (b *beside) apply(changes []OverrideChange, whole map[string]bool) {
	byPolicy := map[string][]OverrideChange{}
	for _, c := range changes {
		if t := b.tables[c.Policy]; t != nil && !whole[c.Policy] {
			byPolicy[c.Policy] = append(byPolicy[c.Policy], c)
		}
	}
	for name, list := range byPolicy {
		b.tables[name].change(list)
	}
}

// load reads all overrides of a policy. Rules that have the table see all of them at once.
func (b *beside) load(ctx context.Context, p *Policy) error {
	var list []OverrideChange
	err := b.source.ReadOverrides(ctx, p.Name, func(piece []OverrideChange) {
		for _, c := range piece {
			if c.Key != "" || c.Text != "" { // which would remove the others
				list = append(list, c)
			}
		}
	})
	if err != nil {
		return err
	}

	t := b.tables[p.Name]
	if t == nil {
		t = &tableBeside{table: newLargeTable()}
		b.tables[p.Name] = t
	}
	t.policy = *p
	t.replace(list)
	return nil
}

// bind makes the rules anew if a policy has got a table since they were made.
func (b *beside) bind() {
	for name := range b.tables {
		if _, inForce := b.follower.before[name]; inForce && !b.bound[name] {
			if _, err := b.renew(); err != nil {
				b.follower.log(slog.LevelError, "headgate: the overrides beside a policy cannot be put in force",
					slog.String("version", b.snapshot.Version), slog.String("error", reason(err)))
			}
			return
		}
	}
}

// renew makes the rules of the policies in force again, with the tables and bindings that there are
// now.
func (b *beside) renew() (left []LeftOut, err error) {
	defer guard("a function that adapts or binds policies", &err)
	compiled, left, err := putRules(b.follower, b.snapshot)
	if err != nil {
		return nil, err
	}

	b.follower.mu.Lock()
	defer b.follower.mu.Unlock()
	b.follower.state.LeftOut, b.follower.state.Policies = left, len(compiled.rules)
	return left, nil
}

// replace puts changes in place of all that was in the table.
func (t *tableBeside) replace(list []OverrideChange) {
	gone := map[string]OverrideChange{}
	t.all(func(key string, _ Override) bool {
		gone[key] = OverrideChange{Key: key}
		return true
	})
	for _, c := range list {
		delete(gone, c.Key)
	}
	t.left = map[string]leftOverride{}
	t.change(slices.AppendSeq(list, maps.Values(gone)))
}

// change applies changes in their order.
func (t *tableBeside) change(list []OverrideChange) {
	texts := map[string]Override{} // that were read, as few texts are different
	changed := make(map[string]*Override, len(list))
	for _, c := range list {
		delete(t.left, c.Key)
		if c.Key == "" && c.Text == "" { // all are removed
			t.all(func(key string, _ Override) bool { changed[key] = nil; return true })
			for key := range changed {
				changed[key] = nil
			}
			clear(t.left)
			continue
		}
		changed[c.Key] = nil
		if c.Text == "" {
			continue
		}

		o, err := readBeside(c, texts)
		if err != nil {
			changed[c.Key] = t.usable(c.Key, o, reason(err))
			continue
		}
		changed[c.Key] = t.usable(c.Key, o, "")
	}
	t.apply(changed)
}

// readBeside reads an override that any program may have written. With an error it returns the ban
// that stands before what cannot be read, if there is one.
func readBeside(c OverrideChange, texts map[string]Override) (Override, error) {
	switch {
	case c.Key == "":
		return Override{}, errors.New("the key is empty")
	case len(c.Key) > maxOverriddenKey:
		return Override{}, fmt.Errorf("the key has %d bytes, more than %d", len(c.Key), maxOverriddenKey)
	}
	if o, ok := texts[c.Text]; ok {
		return o, nil
	}
	o, err := ParseOverride(c.Text)
	if err == nil && len(texts) < maxTexts {
		texts[c.Text] = o
	}
	return o, err
}

// maxTexts bounds the texts of overrides that are remembered while many are read.
const maxTexts = 1000

// onlyBan ends the reason of an override whose ban is in the table.
const onlyBan = "; its ban stays in force"

// usable returns what the policy can have of an override, or nil, and notes what it cannot have.
// unread is why the rest of its text cannot be read, or "".
func (t *tableBeside) usable(key string, o Override, unread string) *Override {
	use, err := UsableOverride(&t.policy, key, o)
	why := unread
	if why == "" {
		if err == nil {
			return &use
		}
		why = reason(err)
	}

	if use.BannedUntil.IsZero() {
		t.left[key] = leftOverride{o, unread, clippedTo(why, maxReason)}
		return nil
	}
	t.left[key] = leftOverride{o, unread, clippedTo(why, maxReason-len(onlyBan)) + onlyBan}
	return &use
}

// checkAll checks all overrides with another version of the policy.
func (t *tableBeside) checkAll() {
	before := t.left
	t.left = map[string]leftOverride{}

	// One that fits no more leaves the table, and one that fits now comes into it.
	changed := map[string]*Override{}
	t.all(func(key string, o Override) bool {
		if _, part := before[key]; !part {
			usable := t.usable(key, o, "")
			if _, left := t.left[key]; left {
				changed[key] = usable
			}
		}
		return true
	})
	for key, l := range before {
		changed[key] = t.usable(key, l.Override, l.unread)
	}
	t.apply(changed)
}

// setStatus stores the result of an attempt to follow, and logs what has become worse.
func (b *beside) setStatus(err error) {
	is := OverridesStatus{Version: b.version, Err: err}
	for name, t := range b.tables {
		is.Count += t.size()
		is.LeftOut += len(t.left)
		for key, l := range t.left { // any of them
			is.Reason = fmt.Sprintf("policy %q: %s: %s", name, OverrideField(t.policy.Key, key, 0), l.why)
			break
		}
	}

	f := b.follower
	f.mu.Lock()
	was := f.state.Overrides
	f.state.Overrides = is
	f.mu.Unlock()

	if is.LeftOut > was.LeftOut {
		f.log(slog.LevelError, "headgate: overrides beside policies are left out, and all others are in force",
			slog.String("version", is.Version), slog.Int("left_out", is.LeftOut),
			slog.String("error", clipped(is.Reason)))
	}
	if err != nil && was.Err == nil {
		f.log(slog.LevelWarn, "headgate: the overrides beside policies cannot be read, and those in force stay",
			slog.String("error", reason(err)))
	}
	if err == nil && was.Err != nil {
		f.log(slog.LevelInfo, "headgate: the overrides beside policies can be read again")
	}
}
