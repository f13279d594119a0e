// This file reads and writes policies in JSON.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// MaxBytes is the maximum size in bytes of a set of policies in JSON.
const MaxBytes = 4 << 20

// maxDepth is more than the depth of any valid set.
const maxDepth = 8

type document struct {
	Policies []json.RawMessage `json:"policies"`
}

// DecodeJSON reads what [EncodeJSON] writes: an object of "policies", a list of
// [Policy]. It is strict: unknown or repeated fields, repeated names, a missing
// list, bytes after the end, and more than [MaxBytes] or [MaxPolicies] are errors.
// A byte order mark before the text is ignored. Every policy of the result is valid. The
// error joins everything that is wrong, each mistake in a policy as a [*FieldError]
// wherever its field is known.
func DecodeJSON(data []byte) (Set, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkJSON(data); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	var d document
	if err := strictly(data, &d); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if d.Policies == nil {
		return nil, errors.New(`policy: there is no list of "policies"; write [] for none`)
	}
	if len(d.Policies) > MaxPolicies {
		return nil, fmt.Errorf("policy: %d policies are more than %d", len(d.Policies), MaxPolicies)
	}
	return readAll(d.Policies)
}

func readAll(raw []json.RawMessage) (Set, error) {
	set := make(Set, 0, len(raw))
	var errs []error
	seen := make(map[string]bool, len(raw))
	for i := range raw {
		var e entry
		if err := strictly(raw[i], &e); err != nil {
			errs = append(errs, fmt.Errorf("policy %d %q: %w", i, textform.Clip(e.Name), err))
			continue
		}
		p, err := e.policy()
		if err != nil {
			errs = append(errs, err)
		}
		if seen[p.Name] {
			errs = append(errs, &FieldError{p.Name, "name", errSameName})
		}
		seen[p.Name] = true
		set = append(set, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// strictly decodes JSON whose keys have been checked.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("unexpected %s", kind.Value)
	case kind != nil:
		return fmt.Errorf("%s: unexpected %s", kind.Field, kind.Value)
	}
	return err
}

// checkJSON refuses input that encoding/json would accept: a key that is repeated
// in an object or differs in case from its field, bytes that are not UTF-8, and
// anything after the end. It refuses deep nesting too.
func checkJSON(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%d bytes are more than %d", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return errors.New("the text is not UTF-8")
	}
	if !json.Valid(data) {
		return syntaxError(data)
	}
	return checkNames(string(data))
}

// syntaxError returns why data is not JSON.
func syntaxError(data []byte) error {
	var value json.RawMessage
	switch err := json.NewDecoder(bytes.NewReader(data)).Decode(&value); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the text ends too early")
	case err != nil:
		return err
	}
	return errors.New("there is something after the end")
}

// container is an object or a list.
type container struct {
	names    map[string]bool // of the fields of an object so far; nil for a list
	next     bool            // the next text is the name of a field
	last     string          // the name of the last field
	anyNames bool            // the names of the fields are checked with the policy
}

// checkNames checks the names of all fields, and the depth, of JSON that is valid.
func checkNames(text string) error {
	var path []container // that are open
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if len(path) == maxDepth {
				return fmt.Errorf("the nesting is deeper than %d", maxDepth)
			}
			path = opened(path, text[i] == '{')
		case '}', ']':
			path = path[:len(path)-1]
		case ',':
			path[len(path)-1].next = path[len(path)-1].names != nil
		case '"':
			end := quoteAfter(text, i)
			if len(path) > 0 && path[len(path)-1].next {
				if err := path[len(path)-1].name(text[i : end+1]); err != nil {
					return err
				}
			}
			i = end
		}
	}
	return nil
}

// opened adds an object or a list to a path.
func opened(path []container, object bool) []container {
	var c container
	if object {
		c.names, c.next = map[string]bool{}, true
		if n := len(path); n > 0 && !path[n-1].anyNames {
			c.anyNames = path[n-1].last == "plans" || path[n-1].last == "overrides"
		}
	}
	return append(path, c)
}

// quoteAfter returns where the text ends that begins with the quote at i.
func quoteAfter(text string, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// name takes the name of the next field, as it is written.
func (c *container) name(quoted string) error {
	c.next, c.last = false, quoted[1:len(quoted)-1]
	if strings.Contains(quoted, `\`) {
		if err := json.Unmarshal([]byte(quoted), &c.last); err != nil {
			return err
		}
	}
	return checkKey(c.last, c.names, c.anyNames)
}

// checkKey checks the name of a field. Those of plans and overridden keys are checked with the policy.
func checkKey(key string, seen map[string]bool, plan bool) error {
	if seen[key] {
		return fmt.Errorf("the field %q is repeated", textform.Clip(key))
	}
	seen[key] = true
	if plan {
		return nil
	}
	for i := range len(key) {
		if (key[i] < 'a' || key[i] > 'z') && key[i] != '_' {
			return fmt.Errorf("the field %q is not known", textform.Clip(key))
		}
	}
	return nil
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
	if err := e.Encode(map[string][]entry{"policies": entries}); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if b.Len() > MaxBytes {
		return nil, fmt.Errorf("policy: %d bytes are more than %d", b.Len(), MaxBytes)
	}
	return b.Bytes(), nil
}

// entry is the written form of a policy. Its fields are texts where those of
// Policy are values, so that all mistakes can be reported and not only the first.
type entry struct {
	Name         string            `json:"name" yaml:"name"`
	Description  string            `json:"description,omitempty" yaml:"description,omitempty"`
	Apps         []string          `json:"apps" yaml:"apps"`
	Limit        string            `json:"limit" yaml:"limit"`
	Plans        map[string]string `json:"plans,omitempty" yaml:"plans,omitempty"`
	PlanBy       string            `json:"plan_by,omitempty" yaml:"plan_by,omitempty"`
	Overrides    map[string]string `json:"overrides,omitempty" yaml:"overrides,omitempty"`
	Key          string            `json:"key" yaml:"key"`
	Match        *matchEntry       `json:"match,omitempty" yaml:"match,omitempty"`
	Access       *accessEntry      `json:"access,omitempty" yaml:"access,omitempty"`
	OnLimit      string            `json:"on_limit,omitempty" yaml:"on_limit,omitempty"`
	Ban          BanText           `json:"ban,omitempty" yaml:"ban,omitempty"`
	OnStoreError string            `json:"on_store_error,omitempty" yaml:"on_store_error,omitempty"`
	Mode         string            `json:"mode,omitempty" yaml:"mode,omitempty"`
	Priority     int               `json:"priority,omitempty" yaml:"priority,omitempty"`
	Version      int64             `json:"version,omitempty" yaml:"version,omitempty"`
	CreatedBy    string            `json:"created_by,omitempty" yaml:"created_by,omitempty"`
	CreatedAt    string            `json:"created_at,omitempty" yaml:"created_at,omitempty"`
	UpdatedBy    string            `json:"updated_by,omitempty" yaml:"updated_by,omitempty"`
	UpdatedAt    string            `json:"updated_at,omitempty" yaml:"updated_at,omitempty"`
}

type (
	matchEntry  Match
	accessEntry Access
)

// entryOf returns the written form of a valid policy.
func entryOf(p *Policy) entry {
	e := entry{
		Name: p.Name, Description: p.Description, Apps: p.Apps, Limit: p.Limit.String(), Key: p.Key,
		PlanBy: p.PlanBy, OnLimit: p.OnLimit, Ban: BanText(p.Ban.String()), OnStoreError: p.OnStoreError, Priority: p.Priority, Version: p.Version,
		CreatedBy: p.CreatedBy, CreatedAt: timeText(p.CreatedAt),
		UpdatedBy: p.UpdatedBy, UpdatedAt: timeText(p.UpdatedAt),
	}
	if !p.Match.isAll() {
		m := matchEntry(p.Match)
		e.Match = &m
	}
	if !p.Access.isZero() {
		a := accessEntry(p.Access)
		e.Access = &a
	}
	e.Plans, e.Overrides = textsOf(p.Plans), textsOf(p.Overrides)
	if p.Mode != Enforce {
		e.Mode = p.Mode.String()
	}
	return e
}

// policy reads the entry. Its error joins a [*FieldError] for every mistake.
func (e *entry) policy() (Policy, error) {
	p := Policy{
		Name: e.Name, Description: e.Description, Apps: e.Apps, Key: e.Key,
		PlanBy: e.PlanBy, OnLimit: e.OnLimit, OnStoreError: e.OnStoreError, Priority: e.Priority, Version: e.Version,
		CreatedBy: e.CreatedBy, UpdatedBy: e.UpdatedBy,
	}
	if e.Match != nil {
		p.Match = Match(*e.Match)
	}
	if e.Access != nil {
		p.Access = Access(*e.Access)
	}
	unread := map[string]bool{}
	var errs []error
	note := func(field string, err error) {
		if err != nil {
			unread[field] = true
			errs = append(errs, &FieldError{e.Name, field, err})
		}
	}
	var err error
	p.Limit, err = core.ParseLimit(e.Limit)
	note("limit", err)
	p.Plans = readLimits(e.Plans, func(name string, _ int, err error) { note("plans."+textform.Clip(name), err) })
	p.Overrides = readLimits(e.Overrides, func(key string, i int, err error) { note(OverrideField(e.Key, key, i), err) })
	note("ban", p.Ban.UnmarshalText([]byte(e.Ban)))
	note("mode", p.Mode.UnmarshalText([]byte(e.Mode)))
	p.CreatedAt, err = parseTime(e.CreatedAt)
	note("created_at", err)
	p.UpdatedAt, err = parseTime(e.UpdatedAt)
	note("updated_at", err)
	for _, fault := range p.faults() {
		if !unread[fault.Field] {
			errs = append(errs, fault)
		}
	}
	return p, errors.Join(errs...)
}

// textsOf returns the texts of limits, or nil for none.
func textsOf(limits map[string]core.Limit) map[string]string {
	if len(limits) == 0 {
		return nil
	}
	texts := make(map[string]string, len(limits))
	for name, limit := range limits {
		texts[name] = limit.String()
	}
	return texts
}

// readLimits reads the texts of limits, and notes the mistakes in the i-th by name.
func readLimits(texts map[string]string, note func(name string, i int, err error)) map[string]core.Limit {
	if texts == nil {
		return nil
	}
	limits := make(map[string]core.Limit, len(texts))
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		var err error
		limits[name], err = core.ParseLimit(texts[name])
		note(name, i, err)
	}
	return limits
}

// checkTime refuses times that RFC 3339 cannot express.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("the year %d is not within 1 to 9999", y)
	}
	return nil
}

// timeText returns t in UTC, or "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", textform.Clip(s))
	}
	return t.UTC(), nil
}
