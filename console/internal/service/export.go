package service

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// Format is a format of exported policies.
type Format string

// The formats. JSON permits larger sets, see policy.MaxBytes and
// policyyaml.MaxBytes.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// Export writes all policies that the actor sees, with their versions.
func (s *Service) Export(ctx context.Context, a Actor, f Format) ([]byte, error) {
	if f != YAML && f != JSON {
		return nil, invalid("format", "it is not yaml or json")
	}
	var set policy.Set
	err := s.ask(ctx, a, "policy.export", "policies", func(d *action) error {
		set = nil
		rows, err := d.Tx.Policies()
		if err != nil {
			return err
		}
		list, err := policiesOf(rows)
		for _, p := range list {
			if d.access.CanSee(p.Apps) {
				set = append(set, p)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	encode := policyyaml.Encode
	if f == JSON {
		encode = policy.EncodeJSON
	}
	data, err := encode(set)
	if err != nil {
		return nil, invalid("format", fmt.Sprintf("the policies cannot be written as %s: %v", f, err))
	}
	return data, nil
}
