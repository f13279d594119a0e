package policy_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func get(path string) *test.Request {
	return &test.Request{Verb: "GET", URLPath: path, Peer: "192.0.2.1:1234"}
}

// limit reads a valid limit.
func limit(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// valid returns a valid policy for the application "shop".
func valid(t testing.TB, name string) policy.Policy {
	t.Helper()
	return policy.Policy{Name: name, Apps: []string{"shop"}, Limit: limit(t, "100/1m"), Key: "ip"}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error:\n%s\nwant:\n%s", got, want)
	}
}

// nothing is a store that writes no decision.
type nothing struct{}

func (nothing) Apply(context.Context, []core.Op, []core.Decision) error { return nil }
