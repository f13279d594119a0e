package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// sample is a request to test. It is a core.Request.
type sample struct {
	App    string `json:"app"`
	Verb   string `json:"method"`
	Host   string `json:"host"`
	URL    string `json:"path"`
	Router string `json:"route"`

	Token map[string]any `json:"claims"`
}

func (s *sample) Context() context.Context { return context.Background() }
func (s *sample) Method() string           { return s.Verb }
func (s *sample) Claims() map[string]any   { return s.Token }
func (s *sample) Route() string            { return s.Router }
func (s *sample) RemoteAddr() string       { return "" }

// Path returns the path without its query.
func (s *sample) Path() string {
	path, _, _ := strings.Cut(s.URL, "?")
	return path
}

// RawQuery returns the query of the path.
func (s *sample) RawQuery() string {
	_, query, _ := strings.Cut(s.URL, "?")
	return query
}

// Header returns only the host: no other header is given.
func (s *sample) Header(name string) []string {
	if name == "Host" && s.Host != "" {
		return []string{s.Host}
	}
	return nil
}

func (s *sample) check() error {
	var faults []fault
	s.Verb = cmp.Or(s.Verb, http.MethodGet)

	if !strings.HasPrefix(s.URL, "/") {
		faults = append(faults, fault{Field: "path", Message: "it does not begin with /"})
	}

	if s.App != "" {
		if err := policy.CheckApp(s.App); err != nil {
			faults = append(faults, fault{Field: "app", Message: err.Error()})
		}
	}

	if len(faults) > 0 {
		return invalid(faults...)
	}
	return nil
}

// test answers with the policies that apply to a request, in the order of the rules.
// Policies that are off do not apply.
func (c *call) test() error {
	var in sample
	if err := c.decode(&in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}

	set, err := c.visible(in.App)
	if err != nil {
		return err
	}

	// The index is the one of the instances, so that the answer is what they do.
	index, err := policy.NewIndex(set)
	if err != nil {
		return invalid(fieldFaults(err)...)
	}

	views := []policyView{}
	for _, i := range index.Select(&in, nil) {
		views = append(views, viewOf(set[i]))
	}

	return c.send(http.StatusOK, struct {
		Policies []policyView `json:"policies"`
	}{views})
}

// visible returns the policies of an application, or of all, that the actor sees
// and that are not off.
func (c *call) visible(app string) (policy.Set, error) {
	all, err := c.o.Service.PoliciesOf(c.ctx(), c.actor, app)
	if err != nil {
		return nil, err
	}
	set := policy.Set(all)
	set = slices.DeleteFunc(set, func(p policy.Policy) bool { return p.Mode == policy.Off })

	// This is the order in which an instance asks its rules.
	slices.SortStableFunc(set, func(a, b policy.Policy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return set, nil
}
