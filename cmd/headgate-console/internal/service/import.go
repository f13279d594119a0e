package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// importTimeout bounds an import whose context has no deadline.
const importTimeout = 2 * time.Minute

// importTime bounds an import. To write many policies or overrides takes longer than the usual
// bound of a transaction.
func importTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, importTimeout)
}

// Missing determines what happens to policies that an import does not name.
type Missing string

// The choices.
const (
	KeepMissing   Missing = "" // they stay as they are
	RemoveMissing Missing = "remove"
)

// Import is a set of policies to write as a whole or not at all.
type Import struct {
	// Data is the output of [Service.Export], or is written by hand. An entry with
	// a version must name the current version; an entry without one changes any
	// version.
	Data   []byte
	Format Format

	Missing Missing

	// Apps restricts RemoveMissing to policies all of whose applications are among these.
	// Nil means all. The actor has to have a role in each.
	Apps []string

	// Compare has PlanImport answer what differs from the policies that the actor sees, also
	// to one who may not write them. Import refuses it.
	Compare bool

	// Base points to the Plan.Base of the plan that the user has confirmed, which
	// may be 0. Nil means that any version of the set will do.
	Base *int64
}

// Plan lists the changes of an import.
type Plan struct {
	Base  int64      `json:"base"`  // the version of the set of policies that it starts from
	Apps  []string   `json:"apps"`  // applications that it adds, by name; see Import
	Steps []PlanStep `json:"steps"` // by name

	// LeftAlone names the policies that RemoveMissing leaves, by name, because they list
	// applications outside of Import.Apps as well.
	LeftAlone []string `json:"left"`
}

// PlanStep is the change of one policy by an import.
type PlanStep struct {
	Name    string         `json:"name"`
	Action  string         `json:"action"` // "create", "update", "delete" or "keep"
	Before  *policy.Policy `json:"before"` // nil for "create"
	After   *policy.Policy `json:"after"`  // nil for "delete"
	Changes []Change       `json:"changes,omitempty"`
}

// keep is the action of a step that changes nothing.
const keep = "keep"

// Counts returns the number of steps of each action.
func (p Plan) Counts() map[string]int {
	counts := map[string]int{}
	for _, step := range p.Steps {
		counts[step.Action]++
	}
	return counts
}

// PlanImport returns the changes that an import would make, and makes none. Its
// errors are the same as those of [Service.Import], unless Compare is set.
func (s *Service) PlanImport(ctx context.Context, a Actor, i Import) (Plan, error) {
	set, err := s.decode(ctx, a, i)
	if err != nil {
		return Plan{}, err
	}

	return answer(ctx, s, a, "policy.import", "policies", func(d *action) (Plan, error) {
		return d.plan(i, set, 0)
	})
}

// Import writes policies in one transaction, and returns the changes. A policy of a name that
// never was keeps the version in the data. An administrator's import into a console without
// any application adds those that the policies list. So the export of one console restores
// it in an empty one. The error is
// ErrMoved if the policies were changed since Base, or an InvalidError that lists
// every mistake of every policy. A forbidden change is a mistake of its policy,
// and makes the error match ErrDenied as well.
func (s *Service) Import(ctx context.Context, a Actor, i Import) (plan Plan, err error) {
	set, err := s.decode(ctx, a, i)
	if err != nil {
		return Plan{}, err
	}

	if i.Compare {
		return Plan{}, invalid("compare", "it is for a plan")
	}

	ctx, cancel := importTime(ctx)
	defer cancel()

	err = s.act(ctx, a, store.CounterPolicies, "policy.import", "policies", func(d *action) error {
		// This transaction has raised the counter, and the plan starts from the version before it.
		if plan, err = d.plan(i, set, 1); err != nil {
			return err
		}

		return d.carryOut(plan)
	})
	return plan, err
}

// decode returns the policies of an import. It looks at the text of an actor who may import, and
// at one text at a time.
func (s *Service) decode(ctx context.Context, a Actor, i Import) (set policy.Set, err error) {
	if err := checkComment(a.comment); err != nil {
		return nil, err
	}
	if err := s.mayImport(ctx, a, i.Compare); err != nil {
		return nil, err
	}

	err = s.Parsing(ctx, func() error {
		set, err = i.decode()
		return err
	})
	return set, err
}

// Parsing calls read, which parses the text of an import, for one import at a time: what is parsed
// takes many times the memory of its text. It returns the error of read, or the cause of the end of
// ctx.
func (s *Service) Parsing(ctx context.Context, read func() error) error {
	giveBack, err := s.parser.take(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	return read()
}

// decode checks the options of an import, and reads its document.
func (i *Import) decode() (policy.Set, error) {
	if i.Missing != KeepMissing && i.Missing != RemoveMissing {
		return nil, invalid("missing", "it is not remove or nothing")
	}
	if i.Apps != nil && i.Missing != RemoveMissing {
		return nil, invalid("apps", "without the removal of missing policies it has no effect")
	}

	var set policy.Set
	var err error
	switch i.Format {
	case YAML:
		set, err = policyyaml.Decode(i.Data)
	case JSON:
		set, err = policy.DecodeJSON(i.Data)
	default:
		return nil, invalid("format", "it is not yaml or json")
	}
	if err != nil {
		return nil, &InvalidError{Faults: FaultsOf(err)}
	}
	return set, nil
}

// planner compares the current policies with the imported ones.
type planner struct {
	d         *action
	compares  bool
	have      policySet
	apps      map[string]bool
	adds      bool            // applications that do not exist are added
	added     map[string]bool // these applications
	policies  int64
	bytes     int64
	faults    faults
	leftAlone []string
	denied    bool
	taken     bool // a hidden policy has one of the names
}

// plan returns the steps of an import, or all mistakes in it. raised is by how much the transaction
// has raised the version of the set of policies.
func (a *action) plan(i Import, set policy.Set, raised int64) (Plan, error) {
	c, err := a.Counter(store.CounterPolicies)
	if err != nil {
		return Plan{}, err
	}
	version := c.Value - raised
	if i.Base != nil && *i.Base != version {
		return Plan{}, ErrMoved
	}

	p, err := a.planner()
	if err != nil {
		return Plan{}, err
	}
	p.compares = i.Compare

	plan := Plan{Base: version}
	named := map[string]bool{}
	for _, after := range set {
		named[after.Name] = true
		plan.Steps = append(plan.Steps, p.write(after))
	}

	if i.Missing == RemoveMissing {
		p.checkScope(i.Apps)
		plan.Steps = append(plan.Steps, p.removeBut(named, i.Apps)...)
	}

	// The order of the data does not matter: steps are by name.
	slices.SortFunc(plan.Steps, func(a, b PlanStep) int { return strings.Compare(a.Name, b.Name) })
	plan.Apps = slices.Sorted(maps.Keys(p.added))
	slices.Sort(p.leftAlone)
	plan.LeftAlone = p.leftAlone

	// The extent is that after all steps.
	p.faults = append(p.faults, extentFaults(p.policies, p.bytes)...)
	return plan, p.err()
}

// planner reads what an import is compared with.
func (a *action) planner() (*planner, error) {
	p := &planner{d: a, apps: map[string]bool{}, added: map[string]bool{}}

	var err error
	if p.have, err = a.policies(); err != nil {
		return nil, err
	}

	// The steps add to the extent that there is now, and take from it.
	for _, size := range p.have.sizes {
		p.bytes += int64(size)
	}
	p.policies = int64(len(p.have.list))

	apps, err := a.Apps()
	for _, a := range apps {
		p.apps[a.Name] = true
	}

	// Only a console without applications takes them from the data, so that an export can restore
	// it.
	p.adds = len(apps) == 0 && a.access.CanManage()
	return p, err
}

// write plans one policy.
func (p *planner) write(after policy.Policy) PlanStep {
	before, exists := p.have.find(after.Name)
	changes := Diff(before, after)
	p.check(after, before, exists, len(changes) > 0)

	if len(changes) == 0 {
		return PlanStep{Name: after.Name, Action: keep, Before: &before, After: &after}
	}

	// A step counts in the extent by the difference of the two forms.
	size, err := publishedSize(after)
	if err != nil {
		p.fault(after.Name, "", err)
	}
	p.bytes += int64(size)

	if !exists {
		p.policies++
		return PlanStep{Name: after.Name, Action: created, After: &after, Changes: changes}
	}

	p.bytes -= int64(p.have.sizes[p.have.at[before.Name]])
	return PlanStep{Name: after.Name, Action: updated, Before: &before, After: &after, Changes: changes}
}

// check collects the mistakes of writing after over before, which does not exist or may differ.
func (p *planner) check(after, before policy.Policy, exists, differs bool) {
	switch {
	// Nothing else is said of a hidden policy.
	case exists && !p.d.access.CanSee(before.Apps):
		p.fault(after.Name, "name", errors.New(nameTaken))
		p.taken = true
		return
	case exists && differs && !p.may(before.Apps):
		p.deny(after.Name, "it takes the owner of every application that the policy lists")
	case exists && after.Version > 0 && after.Version != before.Version:
		p.fault(after.Name, "version", fmt.Errorf("it is based on version %d, and the policy has version %d",
			after.Version, before.Version))
	case !exists && after.Version > 0 && p.was(after.Name):
		p.fault(after.Name, "version",
			fmt.Errorf("it is based on version %d, and the policy was deleted", after.Version))
	}

	// A policy that stays as it is may list what it lists.
	if differs {
		p.checkApps(after)
	}
}

// was reports whether there ever was a policy of the name.
func (p *planner) was(name string) bool {
	last, err := p.d.LastVersion(name)
	if err != nil {
		p.fault(name, "", err)
	}
	return last > 0
}

// may reports whether the actor may write policies of these applications, or for a
// comparison, see them.
func (p *planner) may(apps []string) bool {
	if p.compares {
		return p.d.access.CanSee(apps)
	}
	return p.d.access.CanEdit(apps)
}

// checkApps refuses applications that the actor does not own or that do not exist.
func (p *planner) checkApps(after policy.Policy) {
	if !p.may(after.Apps) {
		p.deny(after.Name, "it takes the owner of every application that the policy is to list")
		return
	}

	for _, app := range after.Apps {
		switch {
		// A comparison does not say whether an application exists in which the actor has no role.
		case p.apps[app], p.compares && p.d.access.Role(app) == NoRole && !p.d.access.seesAll():
		case p.adds:
			p.added[app] = true
		default:
			p.fault(after.Name, "apps", fmt.Errorf("%q does not exist", app))
		}
	}
}

// checkScope adds a mistake for each application that does not exist, or in which the actor has no
// role.
func (p *planner) checkScope(apps []string) {
	for _, app := range apps {
		if !p.adds && (!p.apps[app] || p.d.access.Role(app) == NoRole) {
			p.faults.add("apps", fmt.Errorf("%q is not an application of yours", textform.Clip(app)))
		}
	}
}

// removeBut plans the deletion of the policies that the actor sees, except for the
// named ones and those outside of the applications, if there are any.
func (p *planner) removeBut(named map[string]bool, apps []string) []PlanStep {
	var steps []PlanStep
	within := func(app string) bool { return slices.Contains(apps, app) }

	for i, before := range p.have.list {
		name := before.Name
		if named[name] || !p.d.access.CanSee(before.Apps) || apps != nil && !slices.ContainsFunc(before.Apps, within) {
			continue
		}

		// The policy is of other applications too, which the import is not about.
		if apps != nil && slices.ContainsFunc(before.Apps, func(app string) bool { return !within(app) }) {
			p.leftAlone = append(p.leftAlone, name)
			continue
		}

		if !p.may(before.Apps) {
			p.deny(name, "it takes the owner of every application that the policy lists")
		}

		p.policies--
		p.bytes -= int64(p.have.sizes[i])
		changes := Diff(before, policy.Policy{})
		steps = append(steps, PlanStep{Name: name, Action: deleted, Before: &before, Changes: changes})
	}
	return steps
}

func (p *planner) fault(name, field string, err error) {
	p.faults = append(p.faults, Fault{Policy: name, Field: field, Message: err.Error()})
}

func (p *planner) deny(name, reason string) {
	p.denied = true
	p.fault(name, "apps", errors.New("not permitted: "+reason))
}

func (p *planner) err() error {
	err := p.faults.err()
	if p.denied {
		return errors.Join(err, p.d.deny("the import writes policies that are not the actor's"))
	}
	if p.taken {
		return &InvalidError{p.faults, p.d.probe()}
	}
	return err
}

// carryOut makes the changes of a plan.
func (a *action) carryOut(plan Plan) error {
	// The applications come first, because policies refer to them.
	for _, app := range plan.Apps {
		if err := a.addApp(app); err != nil {
			return err
		}
	}

	done := 0
	for _, step := range plan.Steps {
		var err error
		switch step.Action {
		case keep:
			continue
		case created:
			_, err = a.insert(*step.After, imported, "")
		case updated:
			_, err = a.overwrite(*step.Before, *step.After, imported, "")
		case deleted:
			err = a.erase(*step.Before, imported, "")
		}

		if err != nil {
			return err
		}
		done++
	}

	// An import without a change makes no new version of the set.
	if done == 0 {
		return errUnchanged
	}
	return nil
}
