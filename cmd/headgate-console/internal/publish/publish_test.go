package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// database is a source whose set has as many policies as its version.
type database struct {
	keys               // and their lock, which guards the fields below, too
	version, published int64
	label              string
	id                 string // "" means "mine"
	former             string
	labels             []string
	replaces           string // a label
	refused            bool
	forgets            bool       // Published is lost, as in a crash
	set                policy.Set // nil means one of as many policies as the version
	beforeSnapshot     func()
	afterOwner         func()
}

func (d *database) change() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version++
	return d.version
}

func (d *database) Pending(context.Context) (version, published int64, label string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version, d.published, d.label, nil
}

func (d *database) Owner(context.Context) (Owner, error) {
	if d.afterOwner != nil {
		defer d.afterOwner()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := Owner{Database: cmp.Or(d.id, "mine"), Former: d.former, Labels: slices.Clone(d.labels), Refused: d.refused,
		OverrideLabels: slices.Clone(d.overrideLabels), Overrides: d.last}
	if d.replaces != "" {
		o.Replaces = Digest(d.replaces)
	}
	return o, nil
}

func (d *database) Intend(_ context.Context, label string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.labels = append(d.labels, label)
	return nil
}

func (d *database) Refused(_ context.Context, label string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = label != d.replaces
	return nil
}

func (d *database) isRefused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

// takeOver decides as an administrator does.
func (d *database) takeOver(label string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replaces, d.refused = label, false
}

func (d *database) Snapshot(context.Context) (policy.Set, int64, error) {
	if d.beforeSnapshot != nil {
		d.beforeSnapshot()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set != nil {
		return d.set, d.version, nil
	}
	return make(policy.Set, d.version), d.version, nil
}

func (d *database) Published(_ context.Context, version int64, label string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgets {
		return errAway
	}
	d.refused = false
	if version >= d.published {
		d.published, d.label = version, label
	}
	return nil
}

// copied returns a copy of the database, with its id.
func (d *database) copied() *database {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &database{version: d.version, published: d.published, label: d.label, labels: slices.Clone(d.labels),
		keys: keys{rows: maps.Clone(d.rows), last: d.last, now: d.now, overrideLabels: slices.Clone(d.overrideLabels)}}
}

var errAway = errors.New("away")

// place is where sets are published.
type place struct {
	table
	mu        sync.Mutex
	away      bool
	label     string
	origin    redissource.Origin
	published policy.Set
	broken    bool  // the set cannot be read
	sizes     []int // of the sets, as they came
	asked     []time.Duration
	began     time.Time
	writes    int
}

func newPlace() *place { return &place{began: time.Now()} }

func (p *place) Published(context.Context) (redissource.Published, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, time.Since(p.began))
	if p.away {
		return redissource.Published{}, errAway
	}
	return redissource.Published{Version: p.label, Origin: p.origin}, nil
}

func (p *place) Load(context.Context, string) (policy.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return policy.Snapshot{}, &policy.RevisionError{Version: p.label, Err: errors.New("broken")}
	}
	return policy.Snapshot{Version: p.label, Policies: p.published}, nil
}

func (p *place) PublishFrom(
	_ context.Context, set policy.Set, expected string, from redissource.Origin, instead string,
) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return "", errAway
	}
	if expected != p.label {
		return "", errors.New("another is there")
	}
	if owner := p.origin.Database; p.label != "" && owner != "" && owner != from.Database && owner != instead {
		return "", &redissource.OwnerError{Version: p.label, Origin: p.origin}
	}
	p.sizes = append(p.sizes, len(set))
	p.writes++
	p.label, p.origin, p.published = nextLabel(set, expected), from, set
	return p.label, nil
}

func (p *place) Next(set policy.Set, expected string) (string, error) {
	return nextLabel(set, expected), nil
}

// nextLabel is a number that counts up and the size of the set.
func nextLabel(set policy.Set, expected string) string {
	number, _, _ := strings.Cut(expected, ".")
	n, _ := strconv.Atoi(number)
	return fmt.Sprintf("%d.%d", n+1, len(set))
}

func (p *place) set(f func(*place)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *place) got() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.sizes...)
}

func start(t *testing.T, d *database, p *place) *Worker {
	t.Helper()
	w := Start(d, p, slog.New(slog.DiscardHandler))
	return w
}

func wantSizes(t *testing.T, p *place, want ...int) {
	t.Helper()
	if got := p.got(); !slices.Equal(got, want) {
		t.Fatalf("sets of %v were published, want %v", got, want)
	}
}

func TestWorkerPublishesAfterWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()

		wantSizes(t, p) // there never were any policies

		for i := 1; i <= 3; i++ {
			d.change()
			w.Wake()
			synctest.Wait()
		}
		wantSizes(t, p, 1, 2, 3)

		if s := w.Status(); s.Published != 3 || s.Err != nil {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestWorkerEmptyDatabaseReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		p.label, p.published = "somebody else's", named("1/1m", "login")
		w := start(t, d, p)
		defer w.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		wantSizes(t, p)
	})
}

func TestWorkerPublishesWithoutWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		w := start(t, d, p)
		defer w.Close()
		synctest.Wait()
		d.change()
		time.Sleep(check)
		synctest.Wait()
		wantSizes(t, p, 1)
	})
}

func TestWorkerRetriesUntilPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// While it fails, ten changes come, of which only the last has to be published.
		d, p := &database{}, newPlace()
		p.away = true
		w := start(t, d, p)
		defer w.Close()

		for range 10 {
			d.change()
			w.Wake()
			time.Sleep(time.Minute)
		}

		synctest.Wait()
		if s := w.Status(); !errors.Is(s.Err, errAway) || s.Failures != len(p.asked) || !s.Since.Equal(p.began) {
			t.Errorf("the status is %+v after %d attempts", s, len(p.asked))
		}

		// Pauses double up to a bound, and each is cut by up to its half so that workers do not
		// come at once.
		pause := minPause
		for i := 1; i < len(p.asked); i++ {
			if gap := p.asked[i] - p.asked[i-1]; gap < pause/2 || gap > pause {
				t.Errorf("pause %d was %s, want %s to %s", i, gap, pause/2, pause)
			}
			pause = min(2*pause, maxPause)
		}

		p.set(func(p *place) { p.away = false })
		time.Sleep(maxPause)
		synctest.Wait()

		wantSizes(t, p, 10)
		if s := w.Status(); s.Err != nil || s.Failures != 0 || s.Published != 10 {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestWorkerRepublishesOnlyAMissingSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		d.change()
		w := start(t, d, p)
		defer w.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		wantSizes(t, p, 1)

		// Redis has lost the set; the worker finds that by its next check.
		p.set(func(p *place) { p.label, p.origin = "", redissource.Origin{} })
		time.Sleep(check)
		synctest.Wait()

		wantSizes(t, p, 1, 1)
	})
}

func TestWorkerKeepsNewerSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		d.change()

		// Between the worker's question and its snapshot another worker publishes a newer set.
		var once sync.Once
		d.beforeSnapshot = func() {
			once.Do(func() { // another worker comes first
				label, err := p.PublishFrom(t.Context(), make(policy.Set, d.change()), "",
					redissource.Origin{Database: "mine", Revision: 2}, "")
				if err != nil {
					t.Error(err)
				}
				d.Intend(t.Context(), label)
				d.Published(t.Context(), 2, label)
			})
		}

		w := start(t, d, p)
		defer w.Close()
		time.Sleep(time.Minute)
		synctest.Wait()

		wantSizes(t, p, 2)
	})
}

func TestWorkersPublishEachSetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p := &database{}, newPlace()
		first, second := start(t, d, p), start(t, d, p)
		defer first.Close()
		defer second.Close()
		for range 5 {
			d.change()
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		wantSizes(t, p, 1, 2, 3, 4, 5)
	})
}
