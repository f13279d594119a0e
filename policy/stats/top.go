// This file publishes the top keys of an instance, and reads those of all.

package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/topkeys"
)

const (
	// TopKept is how long the top keys of an instance are kept after it wrote them last.
	TopKept = 2 * time.Minute

	// MaxTop is the maximum number of keys of each list that ReadTop returns.
	MaxTop = 100

	// topEvery is the minimum time between two writes of the top keys, and topPause the
	// maximum for an instance that needs long to sum them up: it spends at most a part in
	// topShare of its time on that. Both, and the longest pause of a recorder, together
	// are shorter than TopKept.
	topEvery = 5 * time.Second
	topPause = 30 * time.Second
	topShare = 50

	// maxTopBytes bounds the text of one instance, and topBudget those of all instances of
	// an application together, which share it equally.
	maxTopBytes = 64 << 10
	topBudget   = 8 << 20

	// readBudget is how many bytes are read of the texts of all instances: several times
	// topBudget, as many may have started since each wrote its part.
	readBudget = 4 * topBudget

	// minKeyBytes is less than what the shortest key takes in a text.
	minKeyBytes = 50
)

// Top has the keys that the instances of an application refuse and admit most often. Its
// error bounds are those of [topkeys.Merge]: a key was counted between Least and Count
// times, and a key that is not listed at most Floor times. That holds for the instances
// whose lists were read, which each wrote theirs some seconds before.
type Top struct {
	// Rules has the rules in which some key was counted in the last minutes, by name. All
	// times are of the server's clock.
	Rules []topkeys.Rule

	// Instances is how many instances were read. Unread is how many more there are whose
	// lists were lost, are of another version, or are too many or too long to be read.
	Instances, Unread int
}

// topText is what an instance writes. Keys are bounded by the summaries, which shorten them.
type topText struct {
	Rules []topRule `json:"rules"`

	// Omitted is how many times a key may have been counted under a rule that was in force
	// and is not among Rules, because the text would have been too long.
	Omitted *omitted `json:"omitted,omitempty"`
}

type topRule struct {
	Name     string          `json:"name"`
	Refused  topkeys.Summary `json:"refused"`
	Admitted topkeys.Summary `json:"admitted"`
}

type omitted struct {
	Refused  int64 `json:"refused"`
	Admitted int64 `json:"admitted"`
}

// publication is the state of publishing top keys, guarded by Recorder.writing.
type publication struct {
	read  func() []topkeys.Rule // nil if nothing is to be published
	due   time.Time             // of the next write
	shown bool                  // the last write had keys, which the next has to replace

	remembered map[string]int64 // the last minute of each policy that was, or is to be, written
	minutes    []minuteKeys     // which are to be written
}

// PublishTop makes the recorder publish what read returns, such as [limiter.Limiter.TopKeys], every
// few seconds, in the calls that write the counts. What all instances of an application publish
// takes at most some 8 MB of Redis, of which each gets an equal part, at most 64 kB: where that is
// too little, fewer keys of each rule are published, and then fewer rules, the quietest left out
// first.
//
// The busiest keys of each minute are also kept for an hour; see [ReadMinuteKeys]. With
// as many of different keys as there may be that takes some 200 MB of Redis for an application, and
// 300 MB if keys are as long as they may be.
//
// Keys that clients send, such as addresses, are then in Redis for as long as TopKept and
// MinuteKeysKept say, and shown to all who may read it. read must be safe for concurrent use. Nil
// ends the publication.
func (r *Recorder) PublishTop(read func() []topkeys.Rule) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.top.read = read
}

// topNow returns the text to publish in a call that is about to be made, or "" if none is
// due. It needs to know how many recorders share the budget.
func (r *Recorder) topNow() string {
	start := time.Now()
	if r.top.read == nil || r.writers == 0 || start.Before(r.top.due) {
		return ""
	}

	server, known := r.clock.At(start)
	if !known {
		return ""
	}

	ahead := server.Sub(r.options.Clock()) // before the keys are read, which may take long
	list := r.top.read()
	r.rememberMinutes(list, ahead)
	rules := topRules(list, ahead)
	text := textOf(rules, int(min(maxTopBytes, topBudget/r.writers)))

	// To sum the keys up may take long: the pause is then longer too.
	took := time.Since(start)
	r.top.due = start.Add(min(max(topEvery, topShare*took), topPause))

	// An instance without keys writes nothing, unless it has to replace keys that it wrote.
	if len(rules) == 0 && !r.top.shown {
		return ""
	}
	return text
}

// topWritten records that a text that topNow returned was written.
func (r *Recorder) topWritten(text string) {
	if text != "" {
		r.top.shown = text != noTop
	}
}

// topFailed makes the next write publish top keys.
func (r *Recorder) topFailed() { r.top.due = time.Time{} }

// noTop is the text of an instance that has counted no key.
const noTop = `{"rules":[]}`

// topRules returns the rules that have counted keys, the busiest first, with times of a
// clock that is ahead by d.
func topRules(list []topkeys.Rule, d time.Duration) []topRule {
	var rules []topRule
	for _, t := range list {
		if t.Refused.Total == 0 && t.Admitted.Total == 0 {
			continue
		}
		rules = append(rules, topRule{t.Rule, moved(t.Refused, d), moved(t.Admitted, d)})
	}

	slices.SortStableFunc(rules, func(a, b topRule) int {
		return cmp.Or(cmp.Compare(b.Refused.Total, a.Refused.Total), cmp.Compare(b.Admitted.Total, a.Admitted.Total))
	})
	return rules
}

// moved returns the summary with times of a clock that is ahead by d, to the second.
func moved(s topkeys.Summary, d time.Duration) topkeys.Summary {
	move := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(d).UTC().Truncate(time.Second)
	}

	// The keys of the caller stay as they are.
	s.From, s.To, s.Keys = move(s.From), move(s.To), slices.Clone(s.Keys)
	for i := range s.Keys {
		s.Keys[i].Since = move(s.Keys[i].Since)
	}
	return s
}

// textOf returns the text of the rules, of at most so many bytes: with all keys, or with
// half as many of each rule until they fit, or with the busiest rules without keys.
func textOf(rules []topRule, most int) string {
	n := 0
	for _, t := range rules {
		n = max(n, len(t.Refused.Keys), len(t.Admitted.Keys))
	}

	for n = min(n, most/minKeyBytes/max(1, len(rules))); n > 0; n /= 2 {
		if text := encode(cutTo(rules, n), nil); len(text) <= most {
			return text
		}
	}

	// One key of each list is too much already, so rules have to go.
	bare := cutTo(rules, 0)
	for kept := len(bare); ; kept = kept * 3 / 4 {
		if text := encode(bare[:kept], omittedOf(bare[kept:])); len(text) <= most || kept == 0 {
			return text
		}
	}
}

// cutTo returns the rules with at most n keys in each list.
func cutTo(rules []topRule, n int) []topRule {
	list := make([]topRule, len(rules))
	for i, t := range rules {
		list[i] = topRule{t.Name, firstOf(t.Refused, n), firstOf(t.Admitted, n)}
	}
	return list
}

// firstOf returns the summary with its first n keys. Its floor covers the others.
func firstOf(s topkeys.Summary, n int) topkeys.Summary {
	n = min(n, len(s.Keys))
	for _, k := range s.Keys[n:] {
		s.Floor = max(s.Floor, k.Count)
	}
	s.Keys = s.Keys[:n]
	return s
}

func omittedOf(rules []topRule) *omitted {
	if len(rules) == 0 {
		return nil
	}
	var o omitted
	for _, t := range rules {
		o.Refused, o.Admitted = max(o.Refused, t.Refused.Floor), max(o.Admitted, t.Admitted.Floor)
	}
	return &o
}

func encode(rules []topRule, o *omitted) string {
	text, err := json.Marshal(topText{append([]topRule{}, rules...), o})
	if err != nil { // no value in it can fail, apart from a time beyond the year 9999
		return noTop
	}
	return string(text)
}

// topIDs lists the recorders that may have written top keys lately.
//
// KEYS: writers. ARGV: for how many milliseconds a recorder counts. Reply: their ids.
var topIDs = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], string.format('%d', now - ARGV[1]), '+inf')
`)

// topTexts reads the beginnings of the texts of recorders, because anything may be in Redis.
//
// KEYS: top keys. ARGV: the place of the last byte to read. Reply: the texts, "" for a recorder
// without one, and a text that is not JSON for a value of another type.
var topTexts = redis.NewScript(`
local texts = {}
for i, key in ipairs(KEYS) do
  local text = redis.pcall('GETRANGE', key, 0, ARGV[1])
  texts[i] = type(text) == 'string' and text or '!'
end
return texts
`)

const (
	// maxTops is how many instances are read at most, and topPage how many in one call.
	maxTops = 20_000
	topPage = 32
)

// ReadTop merges the top keys of all instances of an application that have published theirs;
// see [Recorder.PublishTop]. An empty prefix means [DefaultPrefix]. Instances that publish
// none count neither as read nor as unread. ReadTop takes at most ten times [DefaultTimeout].
func ReadTop(ctx context.Context, client redis.UniversalClient, prefix, app string) (Top, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*DefaultTimeout)
	defer cancel()
	calls, k := rediscall.NewCaller(client), keysOf(prefix, app)

	var ids []string
	err := calls.Do(ctx, func(ctx context.Context) (err error) {
		ids, err = topIDs.Run(ctx, client, []string{k.writers()}, TopKept.Milliseconds()).StringSlice()
		return err
	})
	if err != nil {
		return Top{}, fmt.Errorf("stats: %w", err)
	}

	var m merging
	bytes, unread := 0, len(ids)
	for page := range slices.Chunk(ids[:min(len(ids), maxTops)], topPage) {
		// The instances beyond the budget are reported as unread.
		if bytes >= readBudget {
			break
		}

		names := make([]string, len(page))
		for i, id := range page {
			names[i] = k.top(id)
		}

		var texts []string
		err := calls.Do(ctx, func(ctx context.Context) (err error) {
			texts, err = topTexts.Run(ctx, client, names, maxTopBytes).StringSlice()
			return err
		})
		if err != nil {
			return Top{}, fmt.Errorf("stats: %w", err)
		}

		unread -= len(page)
		for _, text := range texts {
			if bytes += len(text); text != "" {
				m.add(text)
			}
		}
	}

	m.top.Unread += unread
	return m.result(), nil
}

// merging collects the lists of the instances.
type merging struct {
	top     Top
	rules   map[string]*lists
	omitted omitted // the sum of all
}

// lists has the summaries of a rule.
type lists struct {
	refused, admitted []topkeys.Summary
	omitted           omitted // by the instances that list the rule
}

// add takes the text of an instance.
func (m *merging) add(text string) {
	t, err := decode(text)
	if err != nil {
		m.top.Unread++
		return
	}

	m.top.Instances++
	m.omitted.add(t.Omitted)
	if m.rules == nil {
		m.rules = map[string]*lists{}
	}

	for _, r := range t.Rules {
		of := m.rules[r.Name]
		if of == nil {
			of = &lists{}
			m.rules[r.Name] = of
		}
		of.refused, of.admitted = append(of.refused, r.Refused), append(of.admitted, r.Admitted)
		of.omitted.add(t.Omitted)
	}
}

func (o *omitted) add(other *omitted) {
	if other != nil {
		o.Refused, o.Admitted = o.Refused+other.Refused, o.Admitted+other.Admitted
	}
}

// maxOmitted is the highest count that an instance omits, so that no sum of them overflows.
const maxOmitted = math.MaxInt64 / (1 << 20)

func decode(text string) (t topText, err error) {
	if len(text) > maxTopBytes {
		return t, errors.New("it is too long")
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, err
	}

	// A rule that occurs twice would count an instance twice.
	names := map[string]bool{}
	for _, r := range t.Rules {
		if names[r.Name] {
			return t, fmt.Errorf("the rule %q occurs twice", r.Name)
		}
		names[r.Name] = true
	}

	if o := t.Omitted; o != nil && (min(o.Refused, o.Admitted) < 0 || max(o.Refused, o.Admitted) > maxOmitted) {
		return t, errors.New("a count is not one")
	}
	return t, nil
}

// result merges the lists. What an instance may have counted of a rule that it omitted
// belongs to the floor of the rule.
func (m *merging) result() Top {
	for name, of := range m.rules {
		unlisted := func(all, listed int64) topkeys.Summary { return topkeys.Summary{Floor: all - listed} }
		m.top.Rules = append(m.top.Rules, topkeys.Rule{
			Rule:     name,
			Refused:  topkeys.Merge(MaxTop, append(of.refused, unlisted(m.omitted.Refused, of.omitted.Refused))...),
			Admitted: topkeys.Merge(MaxTop, append(of.admitted, unlisted(m.omitted.Admitted, of.omitted.Admitted))...),
		})
	}

	slices.SortFunc(m.top.Rules, func(a, b topkeys.Rule) int { return cmp.Compare(a.Rule, b.Rule) })
	return m.top
}
