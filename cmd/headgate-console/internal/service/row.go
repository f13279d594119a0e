package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// content returns a policy without its version and the authors and times of
// changes, so that versions can be compared.
func content(p policy.Policy) policy.Policy {
	p.Version = 0
	p.CreatedBy, p.UpdatedBy = "", ""
	p.CreatedAt, p.UpdatedAt = time.Time{}, time.Time{}
	return p
}

// rowOf returns the row of a valid policy.
func rowOf(p policy.Policy) (store.Policy, error) {
	body, err := json.Marshal(content(p))
	if err != nil {
		return store.Policy{}, err
	}

	size, err := publishedSize(p)
	if err != nil {
		return store.Policy{}, err
	}

	return store.Policy{
		Name: p.Name, Version: p.Version, Mode: p.Mode.String(), Priority: p.Priority, Apps: p.Apps,
		Size: size, Search: searchable(p), Body: string(body),
		CreatedAt: microseconds(p.CreatedAt), CreatedBy: p.CreatedBy,
		UpdatedAt: microseconds(p.UpdatedAt), UpdatedBy: p.UpdatedBy,
	}, nil
}

// publishedSize returns the bytes of the published form of a valid policy.
func publishedSize(p policy.Policy) (int, error) {
	published, err := policy.EncodeJSON(policy.Set{publishable(p)})
	return len(published), err
}

// searchable returns the text that a search looks through.
func searchable(p policy.Policy) string {
	parts := []string{p.Name, p.Description, p.Limit.String(), p.Key, p.Match.Host, p.Match.Path}
	parts = append(parts, p.Match.Methods...)
	return strings.ToLower(strings.Join(append(parts, p.Apps...), "\n"))
}

// publishable returns a policy for the running instances, without names of people.
func publishable(p policy.Policy) policy.Policy {
	version := p.Version
	p = content(p)
	p.Version = version
	return p
}

// policyOf reads a row.
func policyOf(r store.Policy) (policy.Policy, error) {
	p, err := contentOf(r.Body)
	if err != nil {
		return p, fmt.Errorf("row of policy %q: %w", r.Name, err)
	}
	p.Version = r.Version
	p.CreatedAt, p.CreatedBy = instant(r.CreatedAt), r.CreatedBy
	p.UpdatedAt, p.UpdatedBy = instant(r.UpdatedAt), r.UpdatedBy
	return p, nil
}

// policiesOf decodes rows, or returns the error of the first that it cannot decode.
func policiesOf(rows []store.Policy) ([]policy.Policy, error) {
	list := make([]policy.Policy, len(rows))
	for i, r := range rows {
		var err error
		if list[i], err = policyOf(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// contentOf reads the body of a row or a revision. Its ban may be an object, which is how bans
// were written once.
func contentOf(body string) (policy.Policy, error) {
	var content struct {
		policy.Policy
		Ban policy.BanText `json:"ban"`
	}
	if err := json.Unmarshal([]byte(body), &content); err != nil {
		return policy.Policy{}, err
	}
	err := content.Policy.Ban.UnmarshalText([]byte(content.Ban))
	return content.Policy, err
}
