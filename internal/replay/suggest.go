// This file finds limits by the peaks of the callers of a log.

package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// SuggestOptions configure a [Suggester].
type SuggestOptions struct {
	Key    string // of a policy, such as "ip"
	Match  policy.Match
	Period time.Duration
	Touch  float64 // the share of callers that may be refused, 0 to 1

	Proxies []string // as in Options
	Users   bool
	MaxKeys int
}

// Suggester finds the smallest limits that refuse at most a share of the callers of a log. A limit
// refuses a caller if at some instant more units are in use than it holds, had it refused nothing
// before. So it is enough to keep, for each caller, the most units that were in use at once: by the
// arithmetic of the algorithm, under a limit that refuses nothing.
//
// It keeps as many callers as fit its memory, and of more a sample that is chosen by their hash. It
// is not safe for concurrent use.
type Suggester struct {
	o       SuggestOptions
	key     core.KeyFunc
	request request

	counts  []core.Limit // limits whose quota refuses nothing
	ladder  []rung
	callers map[uint64]*profile
	level   uint // of the sample: one in 1<<level

	// Profiles take bytes, of at most maxBytes. full reports whether these bounded the sample.
	bytes, maxBytes int
	full            bool

	requests, sampled int64
	first, last       int64
}

// Bounds of the memory of a Suggester. Most profiles are small, and those of callers that never
// rest are of many kilobytes.
const (
	maxProfiles     = 1 << 16
	maxProfileBytes = 256 << 20
)

// rung is a rate of the ladder, whose burst refuses nothing.
type rung struct {
	limit   core.Limit
	compact core.Compact
}

// profile is what is known of a caller.
type profile struct {
	states []core.State // under counts
	peaks  []int64

	// Under the rungs from cut on the caller has as many units in use, all taken at one instant.
	rungs   []level
	cut     int
	cutUsed int64
	cutAt   int64
	beyond  int64 // the peak under the rungs that have no level

	bytes int // as they were counted last
}

// size returns the bytes of the profile and of what it points to.
func (p *profile) size() int {
	n := int(unsafe.Sizeof(*p)) + cap(p.rungs)*int(unsafe.Sizeof(level{})) + cap(p.peaks)*8
	n += cap(p.states) * int(unsafe.Sizeof(core.State{}))
	for i := range p.states {
		n += cap(p.states[i].Log) * int(unsafe.Sizeof(core.Entry{}))
	}
	return n
}

// level is a caller under a rung. faster is a peak under this rung and all faster ones.
type level struct{ used, mark, peak, faster int64 }

// countTexts are the limits that count what a caller uses in a period, with a %d for the quota, and
// such as refuse the same requests. The first token that is taken from a bucket of its quota begins
// the period at whose end all of them come back at once, as in a fixed window.
var countTexts = []struct{ limit, same string }{
	{"%d/%s fixed-window", "%d/%s token-bucket"}, {"%d/%s sliding-window", ""}, {"%d/%s sliding-log", ""},
}

// NewSuggester returns a suggester for a log that has the fields. The error names every mistake of
// the options, and what the key needs and the log has not.
func NewSuggester(o SuggestOptions, has accesslog.Fields) (*Suggester, error) {
	p := policy.Policy{Name: "suggest", Apps: []string{app}, Key: o.Key, Match: o.Match,
		Limit: core.MustParseLimit("1/1m")}
	b, err := (&Options{Proxies: o.Proxies, Users: o.Users}).bindings()
	if err != nil {
		return nil, err
	}

	compiled, err := policy.Compile(app, []policy.Policy{p}, b)
	if err != nil {
		return nil, err
	}

	if needs := missing(&p, has, o.Users); needs != "" {
		return nil, fmt.Errorf("the key %q needs %s, which the logs have not", textform.Clip(o.Key), needs)
	}

	s := &Suggester{o: o, key: compiled.Rules()[0].Key, callers: map[uint64]*profile{}, maxBytes: maxProfileBytes}
	if o.Touch < 0 || o.Touch > 1 {
		return nil, fmt.Errorf("the share %v of callers is not within 0 to 1", o.Touch)
	}

	for _, text := range countTexts {
		if l, ok := largest(text.limit, o.Period); ok {
			s.counts = append(s.counts, l)
		}
	}
	s.climb()
	if len(s.counts) < len(countTexts) || len(s.ladder) == 0 {
		return nil, fmt.Errorf("the period %s is not one of a limit", textform.Duration(o.Period))
	}

	return s, nil
}

// largest returns the limit of the text with the largest quota that is a power of ten.
func largest(text string, period time.Duration) (l core.Limit, ok bool) {
	for n := int64(1e9); n > 0; n /= 10 {
		l, err := core.ParseLimit(fmt.Sprintf(text, n, period))
		if err == nil && l.Validate() == nil {
			return l, true
		}
	}
	return core.Limit{}, false
}

// The ladder has every quota up to exactQuota, and then such that one is a twentieth above the one
// before it.
const (
	exactQuota = 64
	maxQuota   = 1_000_000
	refuseNone = 1_000_000 // a burst
)

// climb makes the ladder.
func (s *Suggester) climb() {
	for q := int64(1); q <= maxQuota; q = max(q+1, q+q/20*min(1, q/exactQuota)) {
		// A slow rate cannot have a burst that takes too long to fill.
		for burst := int64(refuseNone); burst > 1; burst /= 2 {
			l, err := core.ParseLimit(fmt.Sprintf("%d/%s burst=%d", q, s.o.Period, burst))
			if err != nil || l.Validate() != nil {
				continue
			}
			if c := l.Compact(); c.Valid() {
				s.ladder = append(s.ladder, rung{l, c})
			}
			break
		}
	}
}

func (r rung) holds() int64 { return r.limit.Capacity() }

// Add counts the next entry of the log. Its time must not be before that of the last.
func (s *Suggester) Add(e *accesslog.Entry) {
	s.request.set(e)
	key, ok := s.key(&s.request)
	if !ok {
		return
	}
	if s.requests++; s.requests == 1 {
		s.first = e.At
	}

	s.last = e.At

	hash := hashOf(key)
	if hash&(1<<s.level-1) != 0 {
		return
	}
	s.sampled++
	p := s.callers[hash]
	if p == nil {
		p = &profile{states: make([]core.State, len(s.counts)), peaks: make([]int64, len(s.counts))}
		s.callers[hash] = p
	}
	s.count(p, e.At)
	s.rise(p, e.At)

	// A profile grows with what its caller does.
	size := p.size()
	s.bytes += size - p.bytes
	p.bytes = size
	for len(s.callers) > maxProfiles || s.bytes > s.maxBytes && len(s.callers) > 1 {
		s.full = s.full || s.bytes > s.maxBytes
		s.halve()
	}
}

// halve keeps about half of the sample.
func (s *Suggester) halve() {
	s.level++
	for hash, p := range s.callers {
		if hash&(1<<s.level-1) != 0 {
			delete(s.callers, hash)
			s.bytes -= p.bytes
		}
	}
}

// count charges a unit under the limits of countTexts.
func (s *Suggester) count(p *profile, at int64) {
	for i := range s.counts {
		if p.peaks[i] > s.counts[i].Quota {
			continue // more than any limit of the algorithm may hold
		}
		op := [1]core.Op{{Verb: core.Take, Limit: s.counts[i], Cost: 1}}
		states := [1]*core.State{&p.states[i]}
		var out [1]core.Decision
		core.Decide(op[:], states[:], at, out[:])

		used := s.counts[i].Quota - out[0].Remaining
		if !out[0].Allowed {
			used, p.states[i] = s.counts[i].Quota+1, core.State{}
		}
		p.peaks[i] = max(p.peaks[i], used)
	}
}

// rise charges a unit under the rates of the ladder, the slowest first. Where no other unit is in
// use, none is under a faster rate, so the faster ones need no count of their own.
func (s *Suggester) rise(p *profile, at int64) {
	end := len(s.ladder)
	if at == p.cutAt {
		end = p.cut
	}

	for i := range end {
		if s.charge(p, i, at) == 1 {
			p.cut, p.cutAt, p.cutUsed = i, at, 1
			p.rungs[i].faster = max(p.rungs[i].faster, 1)
			return
		}
	}

	// Nothing comes back at the instant of the last cut.
	if at == p.cutAt && p.cut < len(s.ladder) {
		p.cutUsed++
		l := p.rungOf(p.cut)
		l.faster = max(l.faster, p.cutUsed)
		return
	}

	p.cut, p.cutAt, p.cutUsed = len(s.ladder), at, 0
}

// rungOf returns the level under a rung.
func (p *profile) rungOf(i int) *level {
	for i >= len(p.rungs) {
		p.rungs = append(p.rungs, level{})
	}
	return &p.rungs[i]
}

// charge charges a unit under a rung, and returns how many are in use then.
func (s *Suggester) charge(p *profile, i int, at int64) (inUse int64) {
	r, l := &s.ladder[i], p.rungOf(i)
	if i >= p.cut {
		l.used, l.mark = min(p.cutUsed, r.holds()), p.cutAt
	}

	// What does not fit any more is more than any burst.
	var d core.Decision
	used, mark, ok := r.compact.Take(l.used, l.mark, at, 1, &d)
	inUse = r.holds() + 1
	if ok && d.Allowed {
		l.used, l.mark, inUse = used, mark, r.holds()-d.Remaining
	}

	l.peak = max(l.peak, inUse)
	return inUse
}

// settle puts the peaks of slower rungs into those of faster ones.
func (p *profile) settle() {
	p.beyond = 0
	for i := range p.rungs {
		p.beyond = max(p.beyond, p.rungs[i].faster)
		p.rungs[i].peak = max(p.rungs[i].peak, p.beyond)
	}
}

// peak returns the most units that the caller had in use under a rung, after settle.
func (p *profile) peak(i int) int64 {
	if i >= len(p.rungs) {
		return p.beyond
	}
	return p.rungs[i].peak
}

// Suggestion is a limit, and how many callers it would have refused a request.
type Suggestion struct {
	Limit   string  `json:"limit"`
	Touched int64   `json:"touched"` // callers
	Share   float64 `json:"share"`   // of all callers
	Knee    bool    `json:"knee,omitempty"`
	Same    string  `json:"same,omitempty"` // a limit that refuses the same requests

	// Refused is how many requests are refused, if the log was replayed with the limit.
	Refused *int64 `json:"refused,omitempty"`
}

// Point is a rate: the burst that refuses at most the share of callers, and the share that a burst
// of the quota itself would refuse.
type Point struct {
	Quota int64   `json:"quota"`
	Burst int64   `json:"burst"`
	Share float64 `json:"share"`
}

// Bin is how many callers have a peak from the one before up to this.
type Bin struct {
	Peak    int64 `json:"peak"`
	Callers int64 `json:"callers"`
}

// SuggestReport is what a Suggester has found.
type SuggestReport struct {
	Requests    int64         `json:"requests"`
	Callers     int64         `json:"callers"`
	OneIn       int64         `json:"sample_one_in"` // 1 if all callers were looked at
	MemoryFull  bool          `json:"memory_full"`   // all callers would take more than 256 MB
	First       time.Time     `json:"first,omitzero"`
	Last        time.Time     `json:"last,omitzero"`
	Period      time.Duration `json:"period_ns"`
	Touch       float64       `json:"touch"`
	Suggestions []Suggestion  `json:"suggestions"`
	Curve       []Point       `json:"curve"`
	Peaks       []Bin         `json:"peaks"` // in any span of one period
}

// errNoCallers is why nothing can be suggested.
var errNoCallers = errors.New("no request was counted, so no limit can be suggested")

// Report returns the suggestions by what was counted so far, the first of which is the default.
func (s *Suggester) Report() (*SuggestReport, error) {
	n := len(s.callers)
	if n == 0 {
		return nil, errNoCallers
	}

	r := &SuggestReport{Requests: s.requests, Callers: int64(n) << s.level, OneIn: 1 << s.level, MemoryFull: s.full,
		First: timeOf(s.first), Last: timeOf(s.last), Period: s.o.Period, Touch: s.o.Touch}

	for _, p := range s.callers {
		p.settle()
	}
	s.suggestRate(r)
	peaks := make([]int64, 0, n)
	for i, text := range countTexts {
		peaks = peaks[:0]
		for _, p := range s.callers {
			peaks = append(peaks, p.peaks[i])
		}
		slices.Sort(peaks)

		// The limit is the peak of the first caller that must not be touched.
		if q := s.quantile(peaks); q <= s.counts[i].Quota {
			period := textform.Duration(s.o.Period)
			s.suggest(r, fmt.Sprintf(text.limit, q, period), above(peaks, q))
			if text.same != "" {
				r.Suggestions[len(r.Suggestions)-1].Same = fmt.Sprintf(text.same, q, period)
			}
		}
		if s.counts[i].SegmentCount() > 0 {
			r.Peaks = bins(peaks, s.level)
		}
	}

	return r, nil
}

// quantile returns the smallest number that at most the share of the sorted numbers exceeds.
func (s *Suggester) quantile(sorted []int64) int64 {
	most := int(math.Floor(s.o.Touch*float64(len(sorted)) + 1e-9))
	return max(1, sorted[max(0, len(sorted)-1-most)])
}

// above returns how many of the sorted numbers exceed n.
func above(sorted []int64, n int64) int64 {
	i, _ := slices.BinarySearch(sorted, n+1)
	return int64(len(sorted) - i)
}

func (s *Suggester) suggest(r *SuggestReport, limit string, touched int64) {
	r.Suggestions = append(r.Suggestions, Suggestion{Limit: limit, Touched: touched << s.level,
		Share: float64(touched) / float64(len(s.callers))})
}

// suggestRate suggests the smallest rate with a burst of its quota, and the knee of the
// rates below it.
func (s *Suggester) suggestRate(r *SuggestReport) {
	period := textform.Duration(s.o.Period)
	var peaks, before []int64 // under the rung, and under the one before it
	var touched []int64       // at the burst of each rung
	plain := -1
	for i := range s.ladder {
		peaks, before = before[:0], peaks
		for _, p := range s.callers {
			peaks = append(peaks, p.peak(i))
		}
		slices.Sort(peaks)

		q, burst := s.ladder[i].limit.Quota, s.quantile(peaks)
		over := above(peaks, q)
		r.Curve = append(r.Curve, Point{q, burst, float64(over) / float64(len(peaks))})
		touched = append(touched, above(peaks, burst))
		if plain < 0 && burst <= q {
			plain = i
			q, over := s.between(r.Curve, before, q, over)
			s.suggest(r, fmt.Sprintf("%d/%s", q, period), over)
		}

		// Beyond it the curve says nothing new.
		if plain >= 0 && over == 0 && i > plain+10 {
			break
		}
	}

	// The knee may be that rate itself.
	if k := knee(r.Curve[:max(0, plain)+1]); k < plain && r.Curve[k].Burst <= s.ladder[k].holds() {
		p := r.Curve[k]
		s.suggest(r, fmt.Sprintf("%d/%s burst=%d", p.Quota, period, p.Burst), touched[k])
		r.Suggestions[len(r.Suggestions)-1].Knee = true
	}
}

// between returns the smallest quota up to that of the last point which is known to be enough, and
// how many callers it touches at most. A quota above that of the point before needs no more burst,
// so it is enough if it is as large as that burst.
func (s *Suggester) between(curve []Point, before []int64, q, over int64) (quota, touched int64) {
	if len(curve) < 2 {
		return q, over
	}
	slower := curve[len(curve)-2]
	if least := max(slower.Quota+1, slower.Burst); least < q {
		return least, above(before, least)
	}
	return q, over
}

// knee returns the point of a falling curve that is farthest below the line between its ends, or
// the last if the curve is hardly below it. A level curve has it at its lowest quota.
func knee(curve []Point) (at int) {
	first, last := curve[0], curve[len(curve)-1]
	width, height := float64(last.Quota-first.Quota), float64(first.Burst-last.Burst)
	if height == 0 {
		return 0
	}

	at = len(curve) - 1
	best := 0.05 // of the width and the height
	for i, p := range curve {
		below := 1 - float64(p.Quota-first.Quota)/width - float64(p.Burst-last.Burst)/height
		if below > best {
			at, best = i, below
		}
	}

	return at
}

// bins counts sorted peaks in steps of a fifth.
func bins(sorted []int64, level uint) (list []Bin) {
	before := 0
	for top := int64(1); before < len(sorted); top = max(top+1, top*6/5) {
		upTo := len(sorted) - int(above(sorted, top))
		list = append(list, Bin{top, int64(upTo-before) << level})
		before = upTo
	}
	return list
}

// Try replays the entries of the log again, each with all suggestions, and sets their Refused. The
// timeline is that of the first.
type Try struct {
	all, first *Replay
	report     *SuggestReport
}

// Try returns what replays the log with the suggestions of the report.
func (s *Suggester) Try(r *SuggestReport, has accesslog.Fields) (*Try, error) {
	var set policy.Set
	for i := range r.Suggestions {
		l, err := core.ParseLimit(r.Suggestions[i].Limit)
		if err != nil {
			return nil, err
		}

		// In shadow mode the limits do not hinder each other.
		set = append(set, policy.Policy{Name: fmt.Sprint("p", i), Apps: []string{app}, Key: s.o.Key, Match: s.o.Match,
			Limit: l, Mode: policy.Shadow})
	}

	first := set[:1:1]
	first = slices.Clone(first)
	first[0].Mode = policy.Enforce

	o := Options{Policies: set, Proxies: s.o.Proxies, Users: s.o.Users, MaxKeys: s.o.MaxKeys}
	all, err := NewReplay(o, has)
	o.Policies = first
	one, err2 := NewReplay(o, has)
	return &Try{all, one, r}, errors.Join(err, err2)
}

// Add replays the next entry.
func (t *Try) Add(e *accesslog.Entry) {
	t.all.Add(e)
	t.first.Add(e)
}

// End completes the report. It returns the refusals of its first suggestion over time, and how many
// requests of new keys shared limits.
func (t *Try) End() (refusals Timeline, sharedKeys int64) {
	all, first := t.all.Report(), t.first.Report()
	for _, p := range all.Policies {
		var i int
		if _, err := fmt.Sscanf(p.Policy, "p%d", &i); err == nil {
			over := p.Over
			t.report.Suggestions[i].Refused = &over
		}
	}

	return first.Refusals, all.SharedKeys + first.SharedKeys
}
