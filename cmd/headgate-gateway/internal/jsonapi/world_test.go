package jsonapi

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// policies are those of the examples in the description.
func policies() []policy.Policy {
	api := policy.Policy{Name: "api", Apps: []string{"shop"}, Limit: core.MustParseLimit("10/1m fixed-window"),
		Key: "user", Priority: 1}
	login := policy.Policy{Name: "login", Apps: []string{"shop"}, Limit: core.MustParseLimit("5/1m fixed-window"),
		Key: "ip", OnLimit: "degrade", Match: policy.Match{Methods: []string{"POST"}, Path: "/login"}}
	return []policy.Policy{api, login}
}

// open returns an engine of a test. Engines with one store share the counts.
func openEngine(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	c, err := callers.New(callers.Options{Trusted: []string{"192.0.2.1"}})
	if err != nil {
		t.Fatal(err)
	}

	o.Apps, o.Bindings, o.Logger, o.Poll = []string{"shop", "blog"}, c.Bindings(), quiet, time.Hour

	e, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Log(err) // of counts that could not be sent, where the test has killed Redis
		}
	})
	return e
}

// api calls a handler.
type api struct {
	t *testing.T
	h http.Handler
}

func openAPI(t *testing.T, e *engine.Engine, change func(*Options)) api {
	t.Helper()
	log := quietlog.New(quiet)
	t.Cleanup(log.Close)
	o := Options{Log: log}
	if change != nil {
		change(&o)
	}
	h, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	return api{t, h}
}

// inMemory returns a handler with the policies, by default those of the examples.
func inMemory(t *testing.T, list ...policy.Policy) api {
	t.Helper()
	if list == nil {
		list = policies()
	}
	return openAPI(t, openEngine(t, engine.Options{Source: engine.Fixed(list)}), nil)
}

// reply is an answer of the handler.
type reply struct {
	status int
	header http.Header
	body   string
}

// call posts a body. change may change the call.
func (a api) call(op, body string, change func(*http.Request)) reply {
	a.t.Helper()
	r := httptest.NewRequest(http.MethodPost, Prefix+op, strings.NewReader(body))
	r.Host = "localhost:8089"
	r.RemoteAddr = "127.0.0.1:4000"
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, r)
	return reply{w.Code, w.Header(), strings.TrimSpace(w.Body.String())}
}

// wantCall posts a body and checks the answer, in which tokens are hg1_.
func (a api) wantCall(op, body string, status int, want string) reply {
	a.t.Helper()
	got := a.call(op, body, nil)
	if text := tokens.ReplaceAllString(got.body, "hg1_"); got.status != status || text != want {
		a.t.Errorf("%s %s:\n%d %s, want\n%d %s", op, body, got.status, text, status, want)
	}
	return got
}

// take takes and returns the token.
func (a api) take(body string) string {
	a.t.Helper()
	got := a.call("take", body, nil)
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || answer.Token == "" {
		a.t.Fatalf("%s: %d %s", body, got.status, got.body)
	}
	return answer.Token
}

// left returns how many units each policy has left for a key.
func (a api) left(key string) (list []int64) {
	a.t.Helper()
	got := a.call("peek", `{"key":"`+key+`"}`, nil)
	var answer struct{ Policies []struct{ Remaining int64 } }
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 {
		a.t.Fatal(errors.Join(err, errors.New(got.body)))
	}
	for _, p := range answer.Policies {
		list = append(list, p.Remaining)
	}
	return list
}

// redisOptions says where a Redis of a test is.
func redisOptions(addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{addr},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}
}
