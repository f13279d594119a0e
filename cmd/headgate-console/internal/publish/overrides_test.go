package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// keys are the overrides of a database: each is a row "policy key=text" at a revision.
type keys struct {
	mu   sync.Mutex // workers use them at once
	rows map[string]int64
	last int64 // that was noted
	now  int64

	overrideLabels []string
	texts          error // that OverrideTexts returns

	sweeps []time.Time // when SweepOverrides was called
	sweep  error       // that it returns
}

func (k *keys) SweepOverrides(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweeps = append(k.sweeps, time.Now())
	return k.sweep
}

// setSweep changes what SweepOverrides returns.
func (k *keys) setSweep(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep = err
}

func (k *keys) IntendOverrides(_ context.Context, label string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.overrideLabels = append(k.overrideLabels, label)
	return nil
}

func (k *keys) OverrideTexts(_ context.Context, policy string, keys []string) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	texts := map[string]string{}
	for row := range k.rows {
		if key, text, _ := strings.Cut(row, "="); policy == "api" && text != "" && slices.Contains(keys, key) {
			texts[key] = text
		}
	}
	return texts, k.texts
}

func (k *keys) ChangedOverrides(
	_ context.Context, after int64, limit int,
) (changes []policy.OverrideChange, revision int64, more bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var rows []string
	for row, r := range k.rows {
		if r > after {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b string) int { return int(k.rows[a] - k.rows[b]) })

	revision, more = k.now, len(rows) > limit
	for _, row := range rows[:min(len(rows), limit)] {
		key, text, _ := strings.Cut(row, "=")
		changes = append(changes, policy.OverrideChange{Policy: "api", Key: key, Text: text})
		if more {
			revision = k.rows[row]
		}
	}
	return changes, revision, more, nil
}

func (k *keys) OverridesPublished(_ context.Context, revision int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = revision
	return nil
}

// put changes the text of a key, "" to remove it.
func (k *keys) put(key, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for row := range k.rows {
		if strings.HasPrefix(row, key+"=") {
			delete(k.rows, row)
		}
	}
	if k.rows == nil {
		k.rows = map[string]int64{}
	}
	k.now++
	k.rows[key+"="+text] = k.now
}

// table is what is published of the overrides, as a *redissource.Source keeps it.
type table struct {
	lock    sync.Mutex // workers use it at once
	is      redissource.Published
	texts   map[string]string
	resets  int
	batches []int // the number of changes of each
	filling bool
}

func (t *table) PublishedOverrides(context.Context) (redissource.Published, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.is, nil
}

func (t *table) OverrideChanges(context.Context, string) (c policy.OverrideChanges, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.filling {
		return c, nil
	}
	c.Version = "E.1"
	if len(t.texts) > 0 {
		c.Stale = []string{"api"}
	}
	return c, nil
}

func (t *table) ReadOverrides(ctx context.Context, _ string, add func([]policy.OverrideChange)) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	for key, text := range t.texts {
		change := policy.OverrideChange{Policy: "api", Key: key, Text: text}
		add([]policy.OverrideChange{change, change})
	}
	return ctx.Err()
}

func (t *table) PublishOverrides(_ context.Context, b redissource.OverrideBatch) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	from := t.is.Origin.Database
	if b.Label == "" || b.Expected != t.is.Version || !b.Reset && from != b.From.Database {
		return fmt.Errorf("refused: %w", redissource.ErrOverridesLost)
	}
	if b.Reset {
		t.texts, t.resets = map[string]string{}, t.resets+1
	}
	for _, c := range b.Changes {
		if t.texts[c.Key] = c.Text; c.Text == "" {
			delete(t.texts, c.Key)
		}
	}
	t.is = redissource.Published{Version: b.Label, Origin: b.From}
	t.filling, t.batches = b.More, append(t.batches, len(b.Changes))
	return nil
}

// all returns the texts as a text.
func (t *table) all() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return fmt.Sprint(t.texts)
}

// settle wakes a worker and waits until it has done what it can.
func settle(w *Worker) {
	w.Wake()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// Single changes are published by themselves, and all of them only if Redis has lost some.
func TestWorkerPublishesChangesOfOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 1}, newPlace()
		w := start(t, d, p)
		defer w.Close()
		want := func(what string, resets int, batches []int, texts map[string]string) {
			t.Helper()
			settle(w)
			if p.resets != resets || !slices.Equal(p.batches, batches) || fmt.Sprint(p.texts) != fmt.Sprint(texts) ||
				p.filling || d.last != d.now {
				t.Errorf("%s: %+v %s of %+v, %v", what, p.is, p.all(), d.rows, w.Status().Err)
			}
			p.batches = nil
		}
		want("none", 0, nil, nil)

		d.put("a", "1/1s")
		want("the first one", 1, []int{1}, map[string]string{"a": "1/1s"})
		d.put("a", "2/1s")
		d.put("b", "3/1s")
		want("two", 1, []int{2}, map[string]string{"a": "2/1s", "b": "3/1s"})
		d.put("b", "")
		want("a removal", 1, []int{1}, map[string]string{"a": "2/1s"})
		want("nothing", 1, nil, map[string]string{"a": "2/1s"})

		// Redis is empty, or has lost its last changes, of which the label may be forgotten.
		p.is, p.texts = redissource.Published{}, nil
		want("empty", 2, []int{2}, map[string]string{"a": "2/1s"})
		p.is.Origin.Revision, p.texts = 1, map[string]string{"a": "1/1s"}
		want("behind", 3, []int{2}, map[string]string{"a": "2/1s"})
		p.is.Origin.Revision, p.is.Version, p.texts = 1, "1.old", map[string]string{"a": "1/1s"}
		want("far behind", 4, []int{2}, map[string]string{"a": "2/1s"})

		// An older console wrote no label.
		p.is.Version = ""
		want("no label", 4, nil, map[string]string{"a": "2/1s"})

		// It ends between publishing and noting it.
		d.last--
		want("noted", 4, nil, map[string]string{"a": "2/1s"})
	})
}

// More changes than go at once are several batches, and instances wait for the last one.
func TestWorkerPublishesManyOverridesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 1}, newPlace()
		for i := range 2*redissource.MaxOverrideChanges + 1 {
			d.put(fmt.Sprint(i), "1/1s")
		}
		w := start(t, d, p)
		defer w.Close()
		settle(w)
		if !slices.Equal(p.batches, []int{1000, 1000, 1}) || p.resets != 1 || p.filling || len(p.texts) != 2001 {
			t.Errorf("batches of %v, %d resets, filling %v, %d texts", p.batches, p.resets, p.filling, len(p.texts))
		}

		// The first batch is of an earlier revision than what was noted.
		p.is, p.texts, p.batches = redissource.Published{}, nil, nil
		settle(w)
		if !slices.Equal(p.batches, []int{1000, 1000, 1}) || p.resets != 2 || w.Status().Err != nil {
			t.Errorf("Redis is empty: batches of %v, %d resets, %v", p.batches, p.resets, w.Status().Err)
		}
	})
}

// Overrides that a program has published stay, and so do those beside policies of another database.
func TestWorkerKeepsTheOverridesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{version: 1}, newPlace()
		p.texts = map[string]string{"x": "9/1s"}
		w := start(t, d, p)
		defer w.Close()
		settle(w)
		if w.Status().Err != nil {
			t.Error(w.Status().Err)
		}

		d.put("a", "1/1s")
		settle(w)
		if s := w.Status(); !strings.Contains(fmt.Sprint(s.Err),
			`the overrides in Redis beside "api" are those of a program`) || p.resets != 0 || s.Published != 1 {
			t.Errorf("%+v, %d resets", s, p.resets)
		}
		p.set(func(p *place) { p.texts = nil })
		settle(w)
		if s := w.Status(); s.Err != nil || p.resets != 1 {
			t.Errorf("%+v, %d resets", s, p.resets)
		}

		p.set(func(p *place) { p.label, p.origin = "9.x", redissource.Origin{Database: "theirs", Revision: 3} })
		d.put("a", "2/1s")
		settle(w)
		if w.Status().Foreign() == nil || p.texts["a"] != "1/1s" {
			t.Errorf("%+v, published %v", w.Status(), p.texts)
		}
	})
}

// The error about overrides of a program names the policies, but not any number of them.
func TestProgramsErrorNamesThePolicies(t *testing.T) {
	few := (&ProgramsError{[]string{"a", "b\n"}}).Error()
	many := (&ProgramsError{[]string{"a", "b", "c", "d", "e", "f", "g"}}).Error()
	if !strings.HasPrefix(few, `the overrides in Redis beside "a", "b\n" are those of a program: `) ||
		!strings.HasPrefix(many, `the overrides in Redis beside "a", "b", "c", "d", "e", and 2 more are `) {
		t.Errorf("%s\n%s", few, many)
	}
}

// What has ended is removed at the start, every hour, and after a failure at the next attempt.
func TestWorkerSweepsOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		d, p := &database{version: 1}, newPlace()
		w := start(t, d, p)
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()

		// A database that is away is asked at each attempt.
		away := errors.New("away")
		d.setSweep(away)
		time.Sleep(time.Hour - time.Minute)
		synctest.Wait()
		if s := w.Status(); !errors.Is(s.Err, away) {
			t.Errorf("%+v", s)
		}

		// It answers again.
		d.setSweep(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.Close()

		// Attempts within one minute count once.
		var at []time.Duration
		for _, s := range d.sweeps {
			at = append(at, s.Sub(begin).Truncate(time.Minute))
		}
		if at = slices.Compact(at); !slices.Equal(at, []time.Duration{0, time.Hour, 2 * time.Hour}) ||
			w.Status().Err != nil {
			t.Errorf("swept after %v, %v", at, w.Status().Err)
		}
	})
}
