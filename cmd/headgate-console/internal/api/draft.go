package api

import (
	"encoding/json"
	"errors"

	"github.com/headgate/headgate/policy"
)

// draft is a policy as a client sends it.
type draft struct {
	policy.Written
	Comment string `json:"comment"` // on the change

	// Clients may send back fields that the console itself writes. They are ignored.
	Sentence  ignored `json:"sentence"`
	Pending   ignored `json:"pending"`
	Reason    ignored `json:"pending_reason"`
	Warnings  ignored `json:"warnings"`
	CreatedBy ignored `json:"created_by"`
	CreatedAt ignored `json:"created_at"`
	UpdatedBy ignored `json:"updated_by"`
	UpdatedAt ignored `json:"updated_at"`
}

type ignored = json.RawMessage

// policy reads the draft, and returns all mistakes in it.
func (d *draft) policy() (policy.Policy, []fault) {
	p, err := d.Written.Policy()
	return p, fieldFaults(err)
}

// fieldFaults splits the error of a validation, which may be nil.
func fieldFaults(err error) (list []fault) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, fieldFaults(e)...)
		}
		return list
	}
	var f *policy.FieldError
	switch {
	case errors.As(err, &f):
		return []fault{{Field: f.Field, Message: f.Err.Error()}}
	case err != nil:
		return []fault{{Message: err.Error()}}
	}
	return nil
}
