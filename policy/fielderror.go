package policy

import (
	"fmt"
	"github.com/headgate/headgate/internal/textform"
)

// FieldError is a mistake in one field of one policy.
type FieldError struct {
	Policy string // its name, as given
	Field  string // as in JSON, such as "limit" or "match.path"
	Err    error
}

// Error names the policy, the field and the mistake.
func (e *FieldError) Error() string {
	return fmt.Sprintf("policy %q: %s: %v", textform.Clip(e.Policy), e.Field, e.Err)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }
