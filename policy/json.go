// This file reads and writes policies in JSON.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
)

// MaxBytes is the maximum size in bytes of a set of policies in JSON.
const MaxBytes = 4 << 20

// maxDepth is more than the depth of any valid set.
const maxDepth = 8

type document struct {
	Plans    map[string]json.RawMessage `json:"plans"`
	Policies []json.RawMessage          `json:"policies"`
}

// DecodeJSON reads what [EncodeJSON] writes: an object of "policies", a list of
// [Policy]. It is strict: unknown or repeated fields, repeated names, a missing
// list, bytes after the end, and more than [MaxBytes] or [MaxPolicies] are errors.
// A byte order mark before the text is ignored.
//
// Beside them may be "plans": up to 64 tables of plans by name, each of which at least one policy
// has to name, as in "plans": "tiers". Such a policy has the table as its own in the result. The
// text with each table in the place of its name has at most MaxBytes too. A mistake in a table is
// told once, as a [*FieldError] without a policy, with a field such as "plans.tiers.pro".
//
// Every policy of the result is valid. The
// error joins everything that is wrong, each mistake in a policy as a [*FieldError]
// wherever its field is known.
func DecodeJSON(data []byte) (Set, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkJSON(data); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	// Each policy is decoded by itself, so that a mistake in one does not hide those of the others.
	var d document
	if err := strictjson.Decode(data, &d); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	// A file without its list is more likely broken than meant to end all limits.
	if d.Policies == nil {
		return nil, errors.New(`policy: there is no list of "policies"; write [] for none`)
	}
	if len(d.Policies) > MaxPolicies {
		return nil, fmt.Errorf("policy: %d policies are more than %d", len(d.Policies), MaxPolicies)
	}
	return d.read(MaxBytes - len(data))
}

// read reads the policies of a document, for which the tables that they name may take so many
// bytes.
func (d *document) read(room int) (Set, error) {
	set := make(Set, 0, len(d.Policies))
	tables := readTables(d.Plans)
	var errs []error
	seen := make(map[string]bool, len(d.Policies))
	for i := range d.Policies {
		e, name, err := readEntry(d.Policies[i])

		// A table counts as named whatever else is wrong with the policy.
		var table *planTable
		var unknown error
		if name != nil {
			table, unknown = tables.take(*name)
			if room -= table.bytes; room < 0 {
				return nil, fmt.Errorf("policy: with a table of plans for each policy that names one, "+
					"the text has more than %d bytes", MaxBytes)
			}
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("policy %d %q: %w", i, textform.Clip(e.Name), err))
			continue
		}
		if unknown != nil {
			errs = append(errs, &FieldError{e.Name, "plans", unknown})
		}

		p, err := e.with(table)
		if err != nil {
			errs = append(errs, err)
		}
		if seen[p.Name] {
			errs = append(errs, &FieldError{p.Name, "name", errSameName})
		}
		seen[p.Name] = true
		set = append(set, p)
	}

	if err := errors.Join(append(tables.mistakes(), errs...)...); err != nil {
		return nil, err
	}
	return set, nil
}

// checkJSON refuses input that encoding/json would accept: a key that is repeated
// in an object or differs in case from its field, bytes that are not UTF-8, and
// anything after the end. It refuses deep nesting too.
func checkJSON(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%d bytes are more than %d", len(data), MaxBytes)
	}
	return strictjson.Check("the text", data, maxDepth, checkField)
}

// checkField checks the name of a field. Those of plans and overridden keys are checked with the
// policy.
func checkField(path []strictjson.Step, repeated bool) error {
	last := len(path) - 1
	name := path[last].Name
	if repeated {
		return fmt.Errorf("the field %q is repeated", textform.Clip(name))
	}

	// A name in a table is chosen by the writer, so any is known here.
	if isTable(path[:last]) {
		return nil
	}

	// A name in other letters would reach the field whose name it has in another case.
	for i := range len(name) {
		if (name[i] < 'a' || name[i] > 'z') && name[i] != '_' {
			return fmt.Errorf("the field %q is not known", textform.Clip(name))
		}
	}
	return nil
}

// tables are the fields whose names the writer of a policy chooses.
var tables = []string{"plans", "overrides", "headers", "query", "claims", "prices"}

// isTable reports whether the object at the path is one of those tables, and not the value of
// such a name.
func isTable(path []strictjson.Step) bool {
	last := len(path) - 1
	if (last == 0 || last == 1) && path[0].Name == "plans" {
		return true // the tables of a document, and the plans of each
	}
	if last < 0 || !slices.Contains(tables, path[last].Name) {
		return false
	}
	return !isTable(path[:last])
}

// EncodeJSON writes a valid set as indented JSON, ordered by name, so that equal
// sets have equal texts. [DecodeJSON] reads it.
func EncodeJSON(s Set) ([]byte, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string][]Written{"policies": entries}); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	// What DecodeJSON would not read is not written either.
	if b.Len() > MaxBytes {
		return nil, fmt.Errorf("policy: %d bytes are more than %d", b.Len(), MaxBytes)
	}
	return b.Bytes(), nil
}
