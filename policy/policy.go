package policy

import (
	"time"

	"github.com/headgate/headgate/core"
)

// Policy is one limit, and the applications and requests that it is for. Its zero
// value is not valid; see [Policy.Validate].
type Policy struct {
	// Name identifies the policy, and its counts, as a rule's name does: a
	// letter a to z, then a to z, 0 to 9, "_", "." and "-", at most 64 bytes.
	Name string `json:"name" yaml:"name"`

	// Description is for people: at most MaxText bytes, in one line or more.
	Description string `json:"description,omitempty" yaml:"description,omitempty"`

	// Apps names the applications that the policy is for, without wildcards. It
	// must name at least one, and none twice.
	Apps []string `json:"apps" yaml:"apps"`

	Limit core.Limit `json:"limit" yaml:"limit"`

	// Key is the recipe that determines whom a request is counted against, such
	// as "ip" or "user+route". See the documentation of the package.
	Key string `json:"key" yaml:"key"`

	// Match selects the requests that the policy applies to. The zero value
	// selects all.
	Match Match `json:"match,omitzero" yaml:"match,omitempty"`

	// OnLimit is the action for a request over the limit: "reject", "degrade", or
	// "wait" and the longest wait, as in "wait 500ms"; "" means "reject".
	OnLimit string `json:"on_limit,omitempty" yaml:"on_limit,omitempty"`

	// OnStoreError is the failure mode for a request that the store cannot decide:
	// "open", "closed" or "local"; "" means the limiter's own.
	OnStoreError string `json:"on_store_error,omitempty" yaml:"on_store_error,omitempty"`

	Mode Mode `json:"mode,omitzero" yaml:"mode,omitempty"`

	// Priority orders the rules of an application: the highest comes first, and
	// equals are ordered by name. All policies that match apply.
	Priority int `json:"priority,omitempty" yaml:"priority,omitempty"`

	// Version counts the changes of this policy, for the program that stores it.
	// It has no influence on decisions.
	Version int64 `json:"version,omitempty" yaml:"version,omitempty"`

	CreatedBy string    `json:"created_by,omitempty" yaml:"created_by,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero" yaml:"created_at,omitempty"`
	UpdatedBy string    `json:"updated_by,omitempty" yaml:"updated_by,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero" yaml:"updated_at,omitempty"`
}

// Match selects the requests that meet all of its conditions. All requests meet
// an empty condition.
type Match struct {
	// Methods lists methods in upper case. "GET" covers HEAD.
	Methods []string `json:"methods,omitempty" yaml:"methods,omitempty"`

	// Host is a name in lower case without a port, or an address, or "*." and a
	// name for all hosts below that name.
	Host string `json:"host,omitempty" yaml:"host,omitempty"`

	// Path is a pattern of net/http.ServeMux without method and host. See the
	// documentation of the package.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
}
