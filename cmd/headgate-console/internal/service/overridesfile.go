// This file reads files of overrides.

package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// MaxOverridesFile is the largest number of bytes of a file of overrides. The 100,000 of a policy
// take about 5 MB.
const MaxOverridesFile = 32 << 20

// maxOverridesInFile is how many overrides a file has in all: about as many as fit, unless their
// keys are very short.
const maxOverridesInFile = 10 * policy.MaxOverridesBeside

// OverrideSet has overrides by policy and key. A policy without any is one that has none.
type OverrideSet map[string]map[string]policy.OverrideText

// DecodeOverrides reads a file of overrides, which is JSON in the form of
// [Service.ExportOverrides]. Limits are not looked at.
func DecodeOverrides(data []byte) (OverrideSet, error) {
	var extent OverridesExtent
	names := func(path []strictjson.Step, repeated bool) error {
		if repeated {
			return errors.New(textform.Clip(path[len(path)-1].Name) + " is there twice")
		}
		return extent.Add(path)
	}
	if err := strictjson.Check("the file", data, 5, names); err != nil {
		return nil, err
	}

	var file struct {
		Overrides OverrideSet `json:"overrides"`
	}
	if err := strictjson.Decode(data, &file); err != nil {
		return nil, err
	}
	if file.Overrides == nil {
		return nil, errors.New("it has no overrides")
	}
	for _, name := range slices.Sorted(maps.Keys(file.Overrides)) {
		if file.Overrides[name] == nil {
			return nil, fmt.Errorf("overrides.%s: it is null", name)
		}
	}
	return file.Overrides, nil
}

// OverridesExtent counts the fields of a file of overrides. The zero value is of the empty file.
type OverridesExtent struct {
	fields   int
	policies int // of the last field
	keys     int // of the last policy
	all      int // the keys of all policies
}

// Add adds the next field of the file, by its path. The error is an InvalidError of the first that
// is more than a console has.
func (o *OverridesExtent) Add(path []strictjson.Step) error {
	switch len(path) {
	case 1:
		o.policies = 0
		if o.fields++; o.fields > policy.MaxOverridesBeside {
			return invalid("", fmt.Sprintf("it has more than %d fields", policy.MaxOverridesBeside))
		}
	case 2:
		o.keys = 0
		if o.policies++; o.policies > policy.MaxPolicies {
			return errManyPolicies()
		}
	case 3:
		if o.all++; o.all > maxOverridesInFile {
			return invalid("overrides", fmt.Sprintf("it has more than %d overrides", maxOverridesInFile))
		}
		if o.keys++; o.keys > policy.MaxOverridesBeside {
			return invalid("overrides."+textform.Clip(path[1].Name),
				fmt.Sprintf("it has more than %d overrides", policy.MaxOverridesBeside))
		}
	}
	return nil
}

// errManyPolicies is the mistake of a set of more policies than there can be.
func errManyPolicies() error {
	return invalid("overrides", fmt.Sprintf("it names more than %d policies", policy.MaxPolicies))
}
