package service

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// Format is a format of exported policies.
type Format string

// The formats. JSON permits larger sets, see policy.MaxBytes and
// policyyaml.MaxBytes. An export in either can be imported: one that would be too large fails.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// Export writes the policies that the actor sees, with their versions: those of an
// application, or all for "". The error is ErrNotFound for an application in which the
// actor has no role. Export returns nothing before the audit log has a row.
func (s *Service) Export(ctx context.Context, a Actor, f Format, app string) ([]byte, error) {
	if f != YAML && f != JSON {
		return nil, invalid("format", "it is not yaml or json")
	}

	object := "policies"
	if app != "" {
		object = appObject(app)
	}

	set, err := answer(ctx, s, a, "policy.export", object, func(d *action) ([]policy.Policy, error) {
		if err := d.seesApp(app); err != nil {
			return nil, err
		}
		return d.selected(lists(app))
	})
	if err != nil {
		return nil, err
	}

	// A set that is too large fails here, before the audit log says that it was exported.
	data, err := encoded(set, f)
	if err != nil {
		return nil, err
	}

	err = s.act(ctx, a, store.CounterUsers, "policy.export", object, func(d *action) error {
		return d.done("", text(map[string]any{"format": f, "policies": len(set)}))
	})
	if err != nil {
		return nil, err
	}

	return data, nil
}

// encoded returns policies in a format.
func encoded(set policy.Set, f Format) ([]byte, error) {
	encode := policyyaml.Encode
	if f == JSON {
		encode = policy.EncodeJSON
	}
	data, err := encode(set)
	if err == nil {
		return data, nil
	}

	// JSON may have more bytes than YAML, and one application has less than all.
	reason := fmt.Sprintf("the policies cannot be written as %s: %v; ", f, err)
	if f == YAML {
		reason += fmt.Sprintf("export them as json, which may have %d bytes, or ", policy.MaxBytes)
	}

	return nil, invalid("format", reason+"export one application at a time")
}
