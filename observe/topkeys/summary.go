package topkeys

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// Summary has the most frequent keys of a time. Its JSON form has at most 1 kB for each key.
// Its zero value is that of no keys at all.
type Summary struct {
	// From and To are the time that the counts are of: whole windows and the part of the
	// current one that has passed. Both are zero if no key was counted.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`

	// Total is how many times any key was counted.
	Total int64 `json:"total"`

	// Floor is how many times a key may have been counted that is not among Keys.
	Floor int64 `json:"floor"`

	// Keys are in descending order of how many times they were certainly counted.
	Keys []Key `json:"keys"`
}

// Key is a key of a [Summary]. It was counted at most Count times, and at least Count-Error
// times.
type Key struct {
	// Key is the key, or its beginning and a digest; see [Shorten]. It holds whatever
	// clients have sent, and has to be escaped where it is shown. Its JSON form is base64,
	// under the name "bytes", unless it is UTF-8.
	Key string

	Count, Error int64

	// Since is the start of the first of the windows without a gap in which the key has had
	// a counter, which may be long before From. A key that was counted rarely before is
	// not followed further back than a flood of other keys.
	Since time.Time
}

// Least returns how many times the key was certainly counted.
func (k *Key) Least() int64 { return k.Count - k.Error }

// keyForm is the JSON form of a Key.
type keyForm struct {
	Key   *string   `json:"key,omitempty"`
	Bytes []byte    `json:"bytes,omitempty"`
	Count int64     `json:"count"`
	Error int64     `json:"error,omitempty"`
	Since time.Time `json:"since"`
}

// MarshalJSON implements [json.Marshaler].
func (k Key) MarshalJSON() ([]byte, error) {
	form := keyForm{Count: k.Count, Error: k.Error, Since: k.Since}
	if utf8.ValidString(k.Key) {
		form.Key = &k.Key
	} else {
		form.Bytes = []byte(k.Key)
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements [json.Unmarshaler]. It refuses what no summary contains.
func (k *Key) UnmarshalJSON(text []byte) error {
	var form keyForm
	if err := json.Unmarshal(text, &form); err != nil {
		return err
	}

	switch {
	case (form.Key == nil) == (form.Bytes == nil):
		return errors.New("topkeys: a key has not one of \"key\" and \"bytes\"")
	case form.Count < 1 || form.Count > maxCount || form.Error < 0 || form.Error >= form.Count:
		return fmt.Errorf("topkeys: a count of %d with an error of %d is not one", form.Count, form.Error)
	}

	*k = Key{Key: string(form.Bytes), Count: form.Count, Error: form.Error, Since: form.Since}
	if form.Key != nil {
		k.Key = *form.Key
	}

	if len(k.Key) > maxText {
		return fmt.Errorf("topkeys: a key of %d bytes is longer than %d", len(k.Key), maxText)
	}
	return nil
}

// maxCount is the highest count in a summary, so that no sum of them overflows.
const maxCount = math.MaxInt64 / (1 << 20)

// UnmarshalJSON implements [json.Unmarshaler]. It refuses what no summary contains.
func (s *Summary) UnmarshalJSON(text []byte) error {
	// A type without this method, or it would call itself.
	type form Summary
	var f form
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}

	switch {
	case len(f.Keys) > MaxTop:
		return fmt.Errorf("topkeys: %d keys are more than %d", len(f.Keys), MaxTop)
	case f.Total < 0 || f.Total > maxCount:
		return fmt.Errorf("topkeys: the total %d is not within 0 to %d", f.Total, int64(maxCount))
	case f.Floor < 0 || f.Floor > maxCount:
		return fmt.Errorf("topkeys: the floor %d is not within 0 to %d", f.Floor, int64(maxCount))
	}

	// A key that is there twice would be added to itself in Merge.
	seen := map[string]bool{}
	for _, k := range f.Keys {
		if seen[k.Key] {
			return fmt.Errorf("topkeys: the key %q occurs twice", k.Key)
		}
		seen[k.Key] = true
	}

	*s = Summary(f)
	return nil
}

// Summary returns the most frequent keys of the windows, at most Options.Top. Under
// concurrent use the counts are not of one instant.
func (s *Sketch) Summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep.Load() {
		return Summary{}
	}

	return s.summaryLocked(s.windows, time.UnixMilli(s.windows[0].start.Load()).UTC(), time.Now().UTC())
}

// summaryLocked returns the summary of windows that are of a time.
func (s *Sketch) summaryLocked(windows []*window, from, to time.Time) Summary {
	all := Summary{From: from, To: to}

	// Each key is in one set, so the floors of the sets do not add up.
	for i := range s.current.Load().sets {
		part := summaryOfSet(windows, i)
		all.Total += part.Total
		all.Floor = max(all.Floor, part.Floor)
		all.Keys = append(all.Keys, part.Keys...)
	}

	all.keepTop(s.top)
	return all
}

// Last returns the most frequent keys of the window before the current one, as [Sketch.Summary]
// does of all. It is the zero value if there is none.
func (s *Sketch) Last() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.windows) - 2
	if s.asleep.Load() || n < 0 {
		return Summary{}
	}

	began := func(w *window) time.Time { return time.UnixMilli(w.start.Load()).UTC() }
	return s.summaryLocked(s.windows[n:n+1], began(s.windows[n]), began(s.windows[n+1]))
}

// listed is a key in the windows of a set, or in the summaries of a Merge.
type listed struct {
	count, least int64
	floors       int64 // the sum of the floors of the windows, or summaries, that list the key
	since        int64
	text         string
}

// summaryOfSet returns the summary of set i over windows, the oldest first.
func summaryOfSet(windows []*window, i int) (part Summary) {
	keys := map[uint32]*listed{}
	for _, w := range windows {
		set := w.sets[i].Load()
		if set == nil {
			continue
		}

		total, floor := set.list(keys)
		part.Total += total
		part.Floor += floor
	}

	for _, k := range keys {
		// A key may have been counted in a window that does not list it, up to the window's floor.
		count := k.count + part.Floor - k.floors
		part.Keys = append(part.Keys, Key{k.text, count, count - k.least, time.UnixMilli(k.since).UTC()})
	}
	return part
}

// list adds the keys of the set, which is that of a window, to keys. Windows are listed with the
// oldest first. total is the sum of all counts, and floor how many times a key that is not listed
// may have been counted.
func (s *set) list(keys map[uint32]*listed) (total, floor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The counters go on counting meanwhile, so each is read once.
	floor = math.MaxUint32
	var counters [ways]uint64
	for j := range counters {
		counters[j] = s.counters[j].Load()
		total += int64(uint32(counters[j]))
		floor = min(floor, int64(uint32(counters[j])))
	}

	for j, v := range counters {
		if v == 0 {
			continue
		}

		h, tag := &s.holders[j], uint32(v>>32)
		k := keys[tag]
		if k == nil {
			k = &listed{text: string(h.text[:h.size])}
			keys[tag] = k
		}

		k.count += int64(uint32(v))
		k.least += int64(uint32(v) - h.over)
		k.floors += floor
		k.since = h.since // that of the latest window stays, because it is listed last
	}
	return total, floor
}

// keepTop orders the keys and keeps the first n.
func (s *Summary) keepTop(n int) {
	slices.SortFunc(s.Keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Least(), a.Least()), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	for _, k := range s.Keys[min(n, len(s.Keys)):] {
		s.Floor = max(s.Floor, k.Count)
	}
	s.Keys = slices.Clip(s.Keys[:min(n, len(s.Keys))])
}

// Merge returns the summary of what all of the summaries have counted, with at most n keys.
// The bounds hold for the sums: a key that one of them lacks may have been counted as
// many times as its Floor. (Agarwal and others, "Mergeable summaries", PODS 2012.) The
// order of the summaries does not matter.
func Merge(n int, summaries ...Summary) Summary {
	var all Summary
	keys := map[string]*listed{}
	for i := range summaries {
		s := &summaries[i]
		all.extend(s)
		for _, k := range s.Keys {
			sum := keys[k.Key]
			if sum == nil {
				sum = &listed{since: math.MaxInt64}
				keys[k.Key] = sum
			}
			sum.count += k.Count
			sum.least += k.Least()
			sum.floors += s.Floor
			sum.since = min(sum.since, k.Since.UnixMilli())
		}
	}

	for _, key := range slices.Collect(maps.Keys(keys)) {
		sum := keys[key]
		count := sum.count + all.Floor - sum.floors
		all.Keys = append(all.Keys, Key{key, count, count - sum.least, time.UnixMilli(sum.since).UTC()})
	}

	all.keepTop(max(n, 0))
	return all
}

// extend adds all of other but its keys.
func (s *Summary) extend(other *Summary) {
	s.Total += other.Total
	s.Floor += other.Floor
	if s.From.IsZero() || !other.From.IsZero() && other.From.Before(s.From) {
		s.From = other.From
	}
	if other.To.After(s.To) {
		s.To = other.To
	}
}
