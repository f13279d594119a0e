package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) {
	fleetTime = patience
	test.Exit(m.Run())
}

const (
	cookieName = "console"
	password   = "nine quiet harbours"
)

// patience bounds a transaction, far above what a busy machine needs.
const patience = 3 * time.Minute

// noon is the time of all tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// credential is a header line of an actor; the zero value has none.
type credential struct{ name, header, value string }

// cast are the actors by name. The policy "p" lists the application a.
type cast map[string]credential

// template is a database with users and a policy, and the users' credentials.
type template struct {
	file string
	cast cast
}

// makeTemplate makes the template once for all tests.
var makeTemplate = sync.OnceValues(func() (template, error) {
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		return template{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "console.db")
	db, err := store.Open(background, store.Options{URL: "sqlite://" + file, Timeout: patience})
	if err != nil {
		return template{}, err
	}
	s := newService(db, nil)
	b := &builder{s: s, cast: cast{"nobody": {}}}
	b.build()
	b.do(db.Close())
	if b.err != nil {
		return template{}, b.err
	}
	data, err := os.ReadFile(file)
	return template{string(data), b.cast}, err
})

// reporting is a Redis with instances of a and b.
type reporting struct {
	service.Fleet // what it has not
	err           error
	list          []policy.Instance // nil means the usual ones

	op func(core.Op) (core.Decision, error) // nil means fixed answers
}

func (reporting) Top(_ context.Context, app string) (stats.Top, error) { return topOf(app) }

func (r reporting) Apply(_ context.Context, ops []core.Op, out []core.Decision) (err error) {
	switch op := ops[0]; {
	case r.op != nil:
		out[0], err = r.op(op)
	case op.Verb == core.Peek:
		// What remains depends on the policy and the key: an answer shows that both have arrived.
		out[0] = core.Decision{Remaining: int64(len(op.Rule + op.Key)), RetryAfter: 1500 * time.Millisecond,
			ResetAfter: time.Minute}
	default:
		out[0] = core.Decision{Allowed: true, Taken: op.Cost}
	}
	return err
}

func (reporting) Credits(context.Context, core.ID) ([]redisstore.Credit, error) {
	return []redisstore.Credit{{Units: 3, Until: noon.UnixMicro()}}, nil
}

func (r reporting) Bans(_ context.Context, policies []string) ([]core.Banned, error) {
	return []core.Banned{{Rule: policies[0], Key: "<b>\x00\n", Until: noon.UnixMicro()}}, r.err
}

// asked returns what Redis is asked about keys from now on, and has it answer with an error or not.
func (w *world) asked(fail error) *[]string {
	asked := &[]string{}
	w.redis.op = func(op core.Op) (core.Decision, error) {
		*asked = append(*asked, op.Verb.String()+" "+op.Rule+" "+op.Key)
		return core.Decision{Allowed: true}, fail
	}
	return asked
}

func (reporting) Minutes(context.Context, string) ([]stats.Minute, error) { return nil, nil }

func (r reporting) Instances(context.Context) ([]policy.Instance, error) {
	if r.list != nil {
		return slices.Clone(r.list), r.err
	}
	return []policy.Instance{
		{ID: "one", Process: "x", App: "a", Version: "7", Age: 1500 * time.Millisecond, Store: "local",
			ClockOffset: -90 * time.Second},
		{ID: "two", App: "b", Version: "6", Refused: "7", Error: "it is wrong"},
	}, r.err
}

func newService(db *store.DB, fleet service.Fleet) *service.Service {
	s, err := service.New(service.Options{
		DB: db, Fleet: fleet,
		Clock: func() time.Time { return noon }, Passwords: auth.Cost{Memory: 8, Time: 1},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err) // the options are right
	}
	return s
}

// world is an API on a database of its own.
type world struct {
	*service.Service
	t    testing.TB
	db   *store.DB
	api  *API
	cast cast
	file string
	log  *bytes.Buffer

	redis *reporting // of the service
}

// newWorld changes the options before it makes the API.
func newWorld(t testing.TB, change ...func(*Options)) *world {
	t.Helper()

	// A database with all users is made once and copied, as passwords take time to hash.
	from, err := makeTemplate()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(test.MemoryDir(t), "console.db")
	if err := os.WriteFile(file, []byte(from.file), 0o600); err != nil {
		t.Fatal(err)
	}

	db, err := store.Open(t.Context(), store.Options{URL: "sqlite://" + file, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })

	w := &world{t: t, db: db, cast: from.cast, file: file, log: &bytes.Buffer{}, redis: &reporting{}}
	w.Service = newService(db, w.redis)
	o := Options{Service: w.Service, Fleet: w.redis, Cookie: cookieName, Clock: func() time.Time { return noon },
		Logger: slog.New(slog.NewTextHandler(w.log, nil))}
	for _, f := range change {
		f(&o)
	}

	if w.api, err = New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

// answer is the answer to a request.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	text   string
	json   any // nil unless it is JSON
}

// request is a request to send. A body that is a string is sent unchanged, and any
// other as JSON. Headers are pairs.
type request struct {
	method, path string
	body         any
	headers      []string
}

func (r request) build(as credential) *http.Request {
	var body io.Reader

	media := "application/json"
	switch b := r.body.(type) {
	case nil:
		media = ""
	case string:
		body = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			panic(err)
		}
		body = bytes.NewReader(text)
	}

	req := httptest.NewRequest(r.method, r.path, body)
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	if as.header != "" {
		req.Header.Set(as.header, as.value)
	}

	// Headers of the request itself come last, so that they may replace the others.
	for pair := range slices.Chunk(r.headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	return req
}

// ask sends a request and compares the answer with the description.
func (w *world) ask(as, method, path string, body any, headers ...string) answer {
	w.t.Helper()
	actor, ok := w.cast[as]
	if !ok {
		w.t.Fatalf("no actor is called %q", as)
	}
	return w.send(request{method, path, body, headers}.build(actor))
}

func (w *world) send(r *http.Request) answer {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	a := answer{t: w.t, what: r.Method + " " + r.URL.Path, status: recorder.Code, header: recorder.Header(),
		text: recorder.Body.String()}
	if strings.Contains(a.header.Get("Content-Type"), "json") && a.text != "" {
		if err := json.Unmarshal([]byte(a.text), &a.json); err != nil {
			w.t.Fatalf("%s: %v\n%s", a.what, err, a.text)
		}
	}
	a.conforms(r)
	return a
}

// want fails unless the answer has the status.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d\n%s", a.what, a.status, status, a.text)
	}
	return a
}

// wantField checks that there is a mistake in a field.
func (a answer) wantField(field string) answer {
	a.t.Helper()
	a.want(http.StatusUnprocessableEntity)
	if !slices.Contains(a.fields(), field) {
		a.t.Errorf("%s: the mistakes are in %q, want %q\n%s", a.what, a.fields(), field, a.text)
	}
	return a
}

// fields returns the fields with mistakes.
func (a answer) fields() (names []string) {
	list, _ := at(a.json, "errors").([]any)
	for _, f := range list {
		names = append(names, at(f, "field").(string))
	}
	return names
}

// get returns the value under keys of the answer.
func (a answer) get(keys ...string) any { return at(a.json, keys...) }

func (a answer) wantValue(want any, keys ...string) answer {
	a.t.Helper()
	if n, ok := want.(int); ok {
		want = float64(n)
	}
	if got := a.get(keys...); got != want {
		a.t.Errorf("%s: %s is %v, want %v\n%s", a.what, strings.Join(keys, "."), got, want, a.text)
	}
	return a
}

// names returns the values of a key in a list.
func (a answer) names(list, key string) []string {
	items, _ := a.get(list).([]any)
	names := []string{}
	for _, item := range items {
		names = append(names, at(item, key).(string))
	}
	return names
}

// login returns a policy to send.
func login(change object) object {
	p := object{"apps": []string{"a"}, "limit": "5/1m", "key": "ip"}
	maps.Copy(p, change)
	return p
}
