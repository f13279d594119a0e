// This file has the tables of plans that stand beside the policies of a document.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
)

// maxTables is the maximum number of tables of plans of a document.
const maxTables = 64

// planTable is a table of plans that policies of a document name. A table that the document does
// not have has no name.
type planTable struct {
	name   string
	plans  map[string]core.Limit // those without a mistake
	faults []error
	bytes  int // of its text
	named  bool
}

// planTables are the tables of a document, by name.
type planTables map[string]*planTable

// tableError is a mistake in a table of plans, or in a plan of it.
type tableError struct{ fault FieldError }

// Error names the table, the plan and the mistake in one line.
func (e *tableError) Error() string { return e.fault.Field + ": " + textform.Line(e.fault.Err) }

// Unwrap returns a [*FieldError] without a policy, with a field such as "plans.tiers.pro".
func (e *tableError) Unwrap() error { return &e.fault }

func errTable(field string, err error) error { return &tableError{FieldError{Field: field, Err: err}} }

// readTables reads the tables of a document, and keeps the mistakes in each.
func readTables(raw map[string]json.RawMessage) planTables {
	tables := make(planTables, len(raw))
	for name, text := range raw {
		t := &planTable{name: name, plans: map[string]core.Limit{}, bytes: len(text)}
		tables[name] = t

		t.mistake("", checkName(name))
		var limits map[string]json.RawMessage
		err := strictjson.Decode(text, &limits)
		switch {
		case err != nil:
			t.mistake("", err)
			continue
		case len(limits) == 0:
			t.mistake("", errors.New("the table is empty"))
		case len(limits) > MaxPlans:
			t.mistake("", fmt.Errorf("%d plans are more than %d", len(limits), MaxPlans))
			continue
		}

		for _, plan := range slices.Sorted(maps.Keys(limits)) {
			limit, err := readPlan(plan, limits[plan])
			if err != nil {
				t.mistake(plan, err)
				continue
			}
			t.plans[plan] = limit
		}
	}
	return tables
}

// readPlan reads the limit of a plan.
func readPlan(name string, raw json.RawMessage) (limit core.Limit, err error) {
	var text string
	if err = strictjson.Decode(raw, &text); err == nil {
		limit, err = core.ParseLimit(text)
	}
	return limit, errors.Join(checkName(name), err)
}

// mistake keeps a mistake in a plan of the table, or in the table itself for "".
func (p *planTable) mistake(plan string, err error) {
	if err == nil {
		return
	}
	field := "plans." + textform.Clip(p.name)
	if plan != "" {
		field += "." + textform.Clip(plan)
	}
	p.faults = append(p.faults, errTable(field, err))
}

// mistakes returns the mistakes in all tables by name, once all policies have been read.
func (p planTables) mistakes() []error {
	var errs []error
	if len(p) > maxTables {
		return []error{errTable("plans", fmt.Errorf("%d tables are more than %d", len(p), maxTables))}
	}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		table := p[name]
		if !table.named {
			table.mistake("", errors.New("no policy names the table"))
		}
		errs = append(errs, table.faults...)
	}
	return errs
}

// take returns the table that a policy names, or an empty one and an error.
func (p planTables) take(name string) (*planTable, error) {
	if table := p[name]; table != nil {
		table.named = true
		return table, nil
	}
	return &planTable{plans: map[string]core.Limit{}},
		fmt.Errorf("the document has no table of plans %q", textform.Clip(name))
}

// readEntry reads a policy of a document. If the policy names a table of plans, it returns the name
// and reads all else.
func readEntry(raw json.RawMessage) (w Written, table *string, err error) {
	// Nearly no policy names a table, and one that does fails here.
	if err = strictjson.Decode(raw, &w); err == nil {
		return w, nil, nil
	}

	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields["plans"], &table) != nil || table == nil {
		return w, nil, err
	}
	delete(fields, "plans")
	rest, err := json.Marshal(fields)
	if err == nil {
		w = Written{}
		err = strictjson.Decode(rest, &w)
	}
	return w, table, err
}

// unfit returns what is wrong with a policy that has the plans of the table, without what is wrong
// with the table itself. The plans that the policy cannot have are one mistake, which names the
// table.
func (p *planTable) unfit(faults []*FieldError) []*FieldError {
	var own []*FieldError
	var plans []error
	for _, fault := range faults {
		plan, ofPlan := strings.CutPrefix(fault.Field, "plans.")
		switch {
		case ofPlan:
			plans = append(plans, fmt.Errorf("the plan %q of the table %q: %w", plan, p.name, fault.Err))
		case fault.Field != "plans":
			own = append(own, fault)
		}
	}

	if plans != nil {
		own = append(own, &FieldError{faults[0].Policy, "plans", errors.Join(plans...)})
	}
	return own
}
