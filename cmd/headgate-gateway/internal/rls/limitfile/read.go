// This file reads YAML:
//
//	domain: shop
//	descriptors:
//	- key: remote_address
//	  rate_limit: {unit: minute, requests_per_unit: 100}
//	- key: tenant
//	  value: free-*
//	  descriptors:
//	  - key: path
//	    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: sliding-window}
//
// A file is about one domain, and several files may be about the same one. A descriptor
// has a key, and a value unless it is for all of them. A "*" in a value stands for any
// number of bytes. Under rate_limit is the limit of requests whose entries lead exactly
// there, and under descriptors is what may follow.
//
// An entry leads to the descriptor with its key and value, otherwise to the first in the
// file with its key whose pattern its value matches, otherwise to the one with its key and
// no value. A request whose second entry leads nowhere has no limit, also if the second
// entry would lead somewhere from another descriptor of the first. Each combination of
// values has a count. Under share_threshold all values that match a pattern share one.
//
// A limit that replaces others by name puts them out of force for a request that meets
// both. An unlimited one counts nothing. One in shadow_mode is counted and refuses no
// request. One in quota_mode refuses requests only if all limits in quota_mode that the
// request meets are exceeded. The answer to a request within the limit carries metadata.
// The fields detailed_metric and value_to_metric are accepted and have no meaning here.
//
// An unknown field, a field in a place where it means nothing, and a "*" in a key are
// mistakes. Keys and values are compared apart: an entry a=b_c does not lead to a
// descriptor with the key a_b and the value c. Requests that are refused are not counted.

package limitfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

const (
	// MaxBytes is the size of the largest file, and of all files of a folder.
	MaxBytes = 4 << 20

	// maxNodes is the highest number of values in a file, each as often as aliases name it.
	maxNodes = 1_000_000

	// maxLimits is the highest number of limits of a domain.
	maxLimits = 10_000

	// maxDepth is how deep descriptors may be nested.
	maxDepth = 32

	// maxErrors is how many mistakes of a file are reported.
	maxErrors = 20

	maxName = 200 // of domains, keys and values in bytes
)

// Parse reads files by their names, in that order. The error names every mistake with its file
// and line.
func Parse(files []File) (*Config, error) {
	c := &Config{domains: map[string]*Domain{}}
	b := &builder{config: c, paths: map[string][]path{}, at: map[*node]position{}}

	total := 0
	for _, f := range files {
		total += len(f.Data)
		if total > MaxBytes {
			return nil, fmt.Errorf("%s: the files have more than %d bytes together", f.Name, MaxBytes)
		}
		b.file(f)
	}

	// Names are given once all limits are known: one that two would have gets a digest.
	for name, d := range c.domains {
		nameLimits(d, b.paths[name])
	}

	if len(b.errs) > 0 {
		if b.more > 0 {
			b.errs = append(b.errs, fmt.Errorf("and %d mistakes more", b.more))
		}
		return nil, errors.Join(b.errs...)
	}
	return c, nil
}

// File is the text of a file.
type File struct {
	Name string
	Data []byte
}

// position is where a value stands.
type position struct {
	file string
	line int
}

// builder makes a Config of files.
type builder struct {
	config *Config
	paths  map[string][]path  // of the limits of each domain, in their order
	at     map[*node]position // of each descriptor

	name  string // of the file that is read
	nodes int
	errs  []error
	more  int
}

// fail adds a mistake at a line of the present file.
func (b *builder) fail(n *yaml.Node, format string, args ...any) {
	if len(b.errs) >= maxErrors {
		b.more++
		return
	}
	b.errs = append(b.errs, fmt.Errorf("%s:%d: %s", b.name, n.Line, fmt.Sprintf(format, args...)))
}

// file reads one file.
func (b *builder) file(f File) {
	b.name, b.nodes = f.Name, 0
	doc, err := document(f.Data)
	if err != nil {
		b.errs = append(b.errs, fmt.Errorf("%s: %w", f.Name, err))
		return
	}

	// Aliases may multiply a small file to any size, so nothing is read before it is measured.
	if !b.countNodes(doc, 0) {
		b.fail(doc, "there are more than %d values in it, or they are nested more than %d deep", maxNodes, 4*maxDepth)
		return
	}

	fields := b.mapping(doc, "a file", "domain", "descriptors")
	if fields == nil {
		return
	}
	name := b.text(fields["domain"])
	if name == "" {
		b.fail(doc, "the domain is empty")
		return
	}

	// Several files may be about one domain.
	d := b.config.domains[name]
	if d == nil {
		d = &Domain{Name: name}
		b.config.domains[name] = d
	}

	b.descriptors(d, &d.root, fields["descriptors"], path{}, 1)
}

// document parses a file. It turns a panic of the parser into an error, as no file may end
// the gateway.
func document(data []byte) (doc *yaml.Node, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("the text cannot be read as YAML")
		}
	}()

	if !utf8.Valid(data) {
		return nil, errors.New("the text is not UTF-8")
	}

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var file, second yaml.Node
	switch err := decoder.Decode(&file); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("there is nothing in it")
	case err != nil:
		return nil, errors.New(strings.ReplaceAll(textform.Clip(err.Error()), "\n", "; "))
	}

	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document in it")
	}
	if len(file.Content) != 1 {
		return nil, errors.New("there is nothing in it")
	}
	return file.Content[0], nil
}

// countNodes reports whether the values below n are not too many. Aliases, which could
// multiply them, count as often as they are used.
func (b *builder) countNodes(n *yaml.Node, depth int) bool {
	if b.nodes++; b.nodes > maxNodes || depth > 4*maxDepth {
		return false
	}
	if n.Kind == yaml.AliasNode {
		return b.countNodes(n.Alias, depth+1)
	}
	for _, c := range n.Content {
		if !b.countNodes(c, depth+1) {
			return false
		}
	}
	return true
}

// resolve follows aliases, which are not nested without end as countNodes has found.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// mapping returns the fields of a mapping, or nil. what is the name of a thing that has the
// known fields.
func (b *builder) mapping(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		b.fail(n, "%s is not a mapping of fields", what)
		return nil
	}

	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge" || !contains(known, key.Value):
			b.fail(key, "%s has no field %s; it may have %s", what, quote(key.Value), strings.Join(known, ", "))
		case fields[key.Value] != nil:
			b.fail(key, "%s is there twice", key.Value)
		default:
			fields[key.Value] = n.Content[i+1]
		}
	}
	return fields
}

func contains(list []string, s string) bool {
	for _, t := range list {
		if t == s {
			return true
		}
	}
	return false
}

func quote(s string) string { return strconv.Quote(textform.Clip(s)) }

// text returns a text, or "" for none.
func (b *builder) text(n *yaml.Node) string {
	n = resolve(n)
	switch {
	case n == nil, n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return ""
	case n.Kind != yaml.ScalarNode:
		b.fail(n, "this is not a text")
		return ""
	case len(n.Value) > maxName:
		b.fail(n, "the text has %d bytes, more than %d", len(n.Value), maxName)
		return ""
	}
	return n.Value
}

// flag returns a boolean, false for none.
func (b *builder) flag(n *yaml.Node) bool {
	n = resolve(n)
	if n == nil || n.Tag == "!!null" {
		return false
	}
	switch strings.ToLower(n.Value) {
	case "true", "yes", "on":
		return n.Kind == yaml.ScalarNode
	case "false", "no", "off":
		return false
	}
	b.fail(n, "%s is not true or false", quote(n.Value))
	return false
}

// number returns a number of 32 bits, or otherwise for none.
func (b *builder) number(n *yaml.Node, otherwise uint32) uint32 {
	n = resolve(n)
	if n == nil || n.Tag == "!!null" {
		return otherwise
	}
	v, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	if err != nil || n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
		b.fail(n, "%s is not a whole number from 0 to %d", quote(n.Value), uint32(math.MaxUint32))
		return otherwise
	}
	return uint32(v)
}

// list returns the elements of a list.
func (b *builder) list(n *yaml.Node) []*yaml.Node {
	n = resolve(n)
	switch {
	case n == nil, n.Tag == "!!null":
		return nil
	case n.Kind != yaml.SequenceNode:
		b.fail(n, "this is not a list")
		return nil
	}
	return n.Content
}

// descriptors reads a list of descriptors that follow the one at parent.
func (b *builder) descriptors(d *Domain, parent *node, list *yaml.Node, from path, depth int) {
	items := b.list(list)
	if len(items) > 0 && depth > maxDepth {
		b.fail(list, "descriptors are nested more than %d deep", maxDepth)
		return
	}
	for _, item := range items {
		b.descriptor(d, parent, item, from, depth)
	}
}

func (b *builder) descriptor(d *Domain, parent *node, item *yaml.Node, from path, depth int) {
	f := b.mapping(item, "a descriptor", "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata")
	if f == nil {
		return
	}

	e := Entry{b.text(f["key"]), b.text(f["value"])}
	if e.Key == "" {
		b.fail(item, "a descriptor has no key")
		return
	}

	// From here on a mistake does not end the descriptor, so that all of its mistakes are found.
	if strings.Contains(e.Key, "*") {
		b.fail(f["key"], `the key %s has a "*", which only a value may have`, quote(e.Key))
	}
	b.flag(f["detailed_metric"])
	b.flag(f["value_to_metric"])
	n := &node{shared: b.flag(f["share_threshold"])}
	if n.shared && !strings.Contains(e.Value, "*") {
		b.fail(f["share_threshold"], `share_threshold means nothing for a value without a "*"`)
	}

	// Of two equal descriptors the second would have no effect.
	if earlier := parent.add(e, n); earlier != nil {
		at := b.at[earlier]
		b.fail(item, "the descriptor %s is there already, at %s:%d", describe(e), at.file, at.line)
		return
	}

	// The place is kept for the message about another descriptor of the same kind.
	b.at[n] = position{b.name, resolve(item).Line}
	to := from.to(e)
	b.limit(d, n, f, to)
	b.descriptors(d, n, f["descriptors"], to, depth+1)
}

func describe(e Entry) string {
	if e.Value == "" {
		return quote(e.Key)
	}
	return quote(e.Key) + " with the value " + quote(e.Value)
}

// add puts the descriptor of an entry below n, or returns the one that is there already.
func (n *node) add(e Entry, child *node) (earlier *node) {
	switch {
	case e.Value == "":
		if earlier = n.keys[e.Key]; earlier != nil {
			return earlier
		}
		if n.keys == nil {
			n.keys = map[string]*node{}
		}
		n.keys[e.Key] = child
	case n.values[e] != nil:
		return n.values[e]
	case strings.Contains(e.Value, "*"):
		for _, p := range n.patterns {
			if p.key == e.Key && p.value == e.Value {
				return p.to
			}
		}
		n.patterns = append(n.patterns, pattern{e.Key, e.Value, strings.Split(e.Value, "*"), child})
	default:
		if n.values == nil {
			n.values = map[Entry]*node{}
		}
		n.values[e] = child
	}

	return nil
}

// limit reads what a descriptor says about its limit.
func (b *builder) limit(d *Domain, n *node, f map[string]*yaml.Node, to path) {
	// These fields are read first: mistakes in them are reported where there is no limit, too.
	shadow, quotaMode := b.flag(f["shadow_mode"]), b.flag(f["quota_mode"])
	metadata := b.metadata(f["metadata"])

	at := resolve(f["rate_limit"])
	if at == nil || at.Tag == "!!null" {
		return
	}
	r := b.mapping(at, "rate_limit",
		"name", "replaces", "unit", "requests_per_unit", "unlimited", "unit_multiplier", "algorithm")
	if r == nil {
		return
	}

	l := &Limit{
		Name: b.text(r["name"]), Shadow: shadow, QuotaMode: quotaMode, Metadata: metadata,
		Unlimited: b.flag(r["unlimited"]),
	}
	for _, item := range b.list(r["replaces"]) {
		b.replaces(l, item)
	}
	n.limit = l

	// An unlimited limit counts nothing, and is in no list of limits.
	unit := b.text(r["unit"])
	if l.Unit = parseUnit(unit); l.Unlimited {
		if l.Unit != 0 {
			b.fail(r["unit"], "an unlimited rate_limit has no unit")
		}
		return
	}

	if l.Unit == 0 {
		b.fail(at, "the unit %s is not second, minute, hour, day, week, month or year", quote(unit))
		return
	}

	l.Requests = b.number(r["requests_per_unit"], 0)
	l.Multiplier = b.number(r["unit_multiplier"], 1)
	b.window(l, at, r["algorithm"])

	if len(d.Limits) == maxLimits {
		b.fail(at, "the domain has more than %d limits", maxLimits)
		return
	}

	d.Limits = append(d.Limits, l)
	b.paths[d.Name] = append(b.paths[d.Name], to)
}

// window makes the limit of unit and algorithm.
func (b *builder) window(l *Limit, at, algorithm *yaml.Node) {
	// A fixed window, and below one that is aligned to the clock, is what envoyproxy/ratelimit has.
	name := cmp.Or(b.text(algorithm), "fixed-window")
	l.Limit = core.Limit{Quota: max(1, int64(l.Requests))}
	if !l.Limit.Algorithm.Parse(name) || l.Limit.Leased() || l.Limit.NeedsWindows() {
		b.fail(algorithm, "the algorithm %s is not sliding-window, sliding-log, gcra, token-bucket or fixed-window",
			quote(name))
		return
	}

	l.Limit.Aligned = l.Limit.Windowed()
	if l.Multiplier == 0 || int64(l.Multiplier) > int64(core.MaxPeriod/l.Unit.Span()) {
		b.fail(at, "%d units of %s are not above 0 and at most %d days",
			l.Multiplier, units[l.Unit].name, core.MaxPeriod/day)
		return
	}

	l.Limit.Period = l.Unit.Span() * time.Duration(l.Multiplier)
	if err := l.Limit.Validate(); err != nil {
		b.fail(at, "%s", textform.Line(err))
	}
}

func (b *builder) replaces(l *Limit, item *yaml.Node) {
	f := b.mapping(item, "an element of replaces", "name")
	if f == nil {
		return
	}
	switch name := b.text(f["name"]); name {
	case "":
		b.fail(item, "an element of replaces has no name")
	case l.Name:
		b.fail(item, "the rate_limit %s replaces itself", quote(name))
	default:
		l.Replaces = append(l.Replaces, name)
	}
}

// metadata returns what the answer is to carry.
func (b *builder) metadata(n *yaml.Node) map[string]any {
	n = resolve(n)
	if n == nil || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		b.fail(n, "metadata is not a mapping of fields")
		return nil
	}

	v, ok := b.value(n).(map[string]any)
	if !ok || len(v) == 0 {
		return nil
	}
	return v
}

// value returns a value of metadata as JSON has it.
func (b *builder) value(n *yaml.Node) any {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		fields := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			fields[b.text(n.Content[i])] = b.value(n.Content[i+1])
		}
		return fields
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = b.value(c)
		}
		return list
	}

	// JSON has one kind of number. What is none, such as .nan, stays a text.
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return b.flag(n)
	case "!!int", "!!float":
		var v float64
		if err := n.Decode(&v); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
	}

	return n.Value
}
