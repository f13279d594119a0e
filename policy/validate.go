package policy

import (
	"errors"
	"fmt"
	"github.com/headgate/headgate/internal/textform"
)

// Validate returns everything that is wrong with the policy, joined, each mistake
// as a [*FieldError], or nil.
func (p *Policy) Validate() error {
	var errs []error
	for _, fault := range p.faults() {
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
}

func (p *Policy) faults() []*FieldError {
	var faults []*FieldError
	note := func(field string, err error) {
		if err != nil {
			faults = append(faults, &FieldError{p.Name, field, err})
		}
	}
	note("name", checkName(p.Name))
	note("description", checkText(p.Description, MaxText))
	note("apps", checkApps(p.Apps))
	note("limit", p.Limit.Validate())
	_, err := parseRecipe(p.Key)
	note("key", err)
	note("match.methods", checkMethods(p.Match.Methods))
	note("match.host", checkHost(p.Match.Host))
	_, err = parsePattern(p.Match.Path)
	note("match.path", err)
	_, err = parseAction(p.OnLimit)
	note("on_limit", err)
	_, err = parseFailure(p.OnStoreError)
	note("on_store_error", err)
	_, err = p.Mode.MarshalText()
	note("mode", err)
	p.checkHistory(note)
	return faults
}

// checkHistory checks the fields without influence on decisions.
func (p *Policy) checkHistory(note func(field string, err error)) {
	if p.Priority < -MaxPriority || p.Priority > MaxPriority {
		note("priority", fmt.Errorf("%d is not within -%d to %d", p.Priority, MaxPriority, MaxPriority))
	}
	if p.Version < 0 {
		note("version", fmt.Errorf("%d is negative", p.Version))
	}
	note("created_by", checkText(p.CreatedBy, maxPerson))
	note("created_at", checkTime(p.CreatedAt))
	note("updated_by", checkText(p.UpdatedBy, maxPerson))
	note("updated_at", checkTime(p.UpdatedAt))
}

func checkApps(apps []string) error {
	if len(apps) == 0 {
		return errors.New("no application is named")
	}
	if len(apps) > MaxApps {
		return fmt.Errorf("%d applications are more than %d", len(apps), MaxApps)
	}
	var errs []error
	seen := map[string]bool{}
	for _, app := range apps {
		if err := CheckApp(app); err != nil {
			errs = append(errs, err)
		}
		if seen[app] {
			errs = append(errs, fmt.Errorf("%q is named twice", textform.Clip(app)))
		}
		seen[app] = true
	}
	return errors.Join(errs...)
}
