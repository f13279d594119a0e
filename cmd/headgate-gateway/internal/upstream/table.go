package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

// Error is a mistake in one upstream of a list.
type Error struct {
	At   int // the place in the list
	Name string
	Err  error // a *FieldError where it is in a field
}

// Error names the upstream.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", textform.Clip(e.Name), e.Err) }

// Unwrap returns the mistake without the upstream.
func (e *Error) Unwrap() error { return e.Err }

// Table has all upstreams. It does not change after Start, and is safe for concurrent use then.
type Table struct {
	pools []*Pool
	index *policy.Index // nil for one upstream of all requests
}

// New returns the table of a list, of which the first upstream that matches a request gets it. The
// error joins an [*Error] for each mistake. One is an upstream that never gets a request, as one
// before it matches all of its requests.
func New(list []Options, logger *slog.Logger) (*Table, error) {
	if len(list) == 0 || len(list) > MaxUpstreams {
		return nil, fmt.Errorf("there are %d upstreams, and there must be 1 to %d", len(list), MaxUpstreams)
	}

	// Each upstream is checked by itself first, and its match too.
	var errs []error
	names := map[string]bool{}
	policies := make([]policy.Policy, len(list))
	for i := range list {
		o := &list[i]
		for _, err := range split(o.Validate()) {
			errs = append(errs, &Error{i, o.Name, err})
		}
		if names[o.Name] {
			errs = append(errs, &Error{i, o.Name, &FieldError{"name", errors.New("another upstream has it too")}})
		}
		names[o.Name] = true
		policies[i] = policy.Policy{Name: o.Name, Match: o.Match}
		if _, err := policy.NewIndex(policies[i : i+1]); err != nil {
			errs = append(errs, matchErrors(i, o.Name, err)...)
		}
		if len(o.Match.Claims) > 0 {
			errs = append(errs, &Error{i, o.Name, &FieldError{"match.claims",
				errors.New("upstreams are not chosen by claims")}})
		}
	}

	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	// The methods of all together may be too many, though those of each are not.
	index, err := policy.NewIndex(policies)
	if err != nil {
		return nil, err
	}

	if err := hidden(list, index); err != nil {
		return nil, err
	}

	return build(list, index, logger)
}

// build makes the pools of a list without mistakes.
func build(list []Options, index *policy.Index, logger *slog.Logger) (*Table, error) {
	t := &Table{index: index}
	if len(list) == 1 && reflect.DeepEqual(list[0].Match, policy.Match{}) {
		t.index = nil
	}

	for i := range list {
		p, err := newPool(list[i], logger)
		if err != nil {
			return nil, &Error{i, list[i].Name, err}
		}
		t.pools = append(t.pools, p)
	}

	return t, nil
}

// split returns the errors that one error joins.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// matchErrors returns the mistakes that an index has found in a match.
func matchErrors(at int, name string, err error) (errs []error) {
	for _, e := range split(err) {
		var field *policy.FieldError
		if errors.As(e, &field) {
			e = &FieldError{field.Field, field.Err}
		}
		errs = append(errs, &Error{at, name, e})
	}
	return errs
}

// Find returns the upstream for a request, or nil if there is none.
func (t *Table) Find(r *http.Request) *Pool {
	if t.index == nil {
		return t.pools[0]
	}
	var room [16]int
	if found := t.index.Select(nethttp.Request(r), room[:0]); len(found) > 0 {
		return t.pools[found[0]]
	}
	return nil
}

// Start begins to ask the addresses of the table, which takes the place of the one before, or of
// nil. Upstreams that are the same in both keep their connections, and addresses that are the same
// keep what is known of them. The caller closes before once no request gets it any more.
func (t *Table) Start(before *Table) {
	for i, p := range t.pools {
		old := before.named(p.options.Name)
		if old != nil && reflect.DeepEqual(old.options, p.options) {
			t.pools[i] = old
			continue
		}
		if old != nil {
			p.inherit(old)
		}
		p.start()
	}
}

// named returns the upstream of a name, or nil. The order may have changed, so the name decides
// which two are one.
func (t *Table) named(name string) *Pool {
	if t == nil {
		return nil
	}
	for _, p := range t.pools {
		if p.options.Name == name {
			return p
		}
	}
	return nil
}

// Close ends the questions to all addresses, and the connections that have no request. What the
// table after it has kept, unless that is nil, goes on, and so do requests.
func (t *Table) Close(after *Table) {
	for _, p := range t.pools {
		if after.named(p.options.Name) != p {
			p.close()
		}
	}
}
