// This file finds the mistakes in the tables of plans that stand beside policies.

package policyyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/policy"
)

// tables are the tables of plans of a text.
type tables struct {
	place  place
	body   ast.Node          // the table of tables, or nil
	byName map[string][]byte // each in JSON
	named  []string          // by policies, with repeats
	room   int               // the bytes that the tables of further policies may take
}

// tablesOf returns the tables of a text. One that cannot be JSON is left to Decode.
func tablesOf(body ast.Node) *tables {
	t := &tables{byName: map[string][]byte{}, room: policy.MaxBytes}
	for _, pair := range pairsOf(body) {
		if pair.Key.GetToken().Value != "plans" {
			continue
		}

		t.place = place{at: spotOf(pair.Key), fields: map[string]spot{"plans": spotOf(pair.Key)}}
		t.place.collect("plans.", pair.Value)
		t.body = pair.Value
		for _, table := range pairsOf(pair.Value) {
			if text, err := appendNode(nil, table.Value); err == nil {
				t.byName[table.Key.GetToken().Value] = text
			}
		}
	}
	return t
}

// headFor returns the begin of a set of a single policy, with the table that the policy names. When
// there is no more room for tables it has none.
func (t *tables) headFor(node ast.Node) []byte {
	head := []byte("{")
	name := tableOf(node)
	text, exists := t.byName[name]
	if t.room -= len(text); !exists || t.room < 0 {
		return head
	}

	t.named = append(t.named, name)
	head, _ = appendText(append(head, `"plans":{`...), name) // no text fails
	return append(append(append(head, ':'), text...), "},"...)
}

// tableOf returns the table of plans that a policy names, or "".
func tableOf(node ast.Node) string {
	for _, pair := range pairsOf(node) {
		if pair.Key.GetToken().Value != "plans" {
			continue
		}
		var name string
		if text, err := appendNode(nil, pair.Value); err == nil && json.Unmarshal(text, &name) == nil {
			return name
		}
	}
	return ""
}

// mistakes returns the mistakes in the tables themselves, each at its line.
func (t *tables) mistakes() (list []error) {
	if t.body == nil {
		return nil
	}

	// Policies that only name the tables in use are wrong in all else, which is not of the tables.
	text, err := appendNode([]byte(`{"plans":`), t.body)
	if err != nil {
		return []error{atLine(err)}
	}
	text = append(text, `,"policies":[`...)
	slices.Sort(t.named)
	for i, name := range slices.Compact(t.named) {
		if i > 0 {
			text = append(text, ',')
		}
		text, _ = appendText(append(text, `{"plans":`...), name)
		text = append(text, '}')
	}

	_, err = policy.DecodeJSON(append(text, "]}"...))
	for _, e := range split(err) {
		if field := tableField(e); field != "" {
			list = append(list, t.place.spotOf(field).mistake(e))
		}
	}
	return list
}

// tableField returns the field of a mistake in the tables, such as "plans.tiers.pro", or "" for
// one in a policy.
func tableField(err error) string {
	if _, ofPolicy := err.(*policy.FieldError); ofPolicy {
		return ""
	}
	var field *policy.FieldError
	if errors.As(err, &field) {
		return field.Field
	}
	return ""
}

// EncodeJSON writes the policies of the text as [policy.EncodeJSON] does, but for the tables of
// plans: those beside the policies of the text stay there. s is what [DecodeLines] has returned
// with the lines.
func (l *Lines) EncodeJSON(s policy.Set) ([]byte, error) {
	text, err := policy.EncodeJSON(s)
	if err != nil || len(l.tables) == 0 {
		return text, err
	}

	d := struct {
		Plans    map[string]json.RawMessage `json:"plans"`
		Policies []json.RawMessage          `json:"policies"`
	}{Plans: map[string]json.RawMessage{}}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}

	// All policies that name a table have it as their own, and so each of them is the table.
	for i, raw := range d.Policies {
		var p struct {
			Name  string          `json:"name"`
			Plans json.RawMessage `json:"plans"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		if table := l.tables[p.Name]; table != "" {
			d.Plans[table] = p.Plans
			own := append([]byte(`"plans": `), p.Plans...)
			named, _ := appendText([]byte(`"plans": `), table) // no text fails
			d.Policies[i] = bytes.Replace(raw, own, named, 1)
		}
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(d)
	return b.Bytes(), err
}
