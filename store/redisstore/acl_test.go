package redisstore

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// documentedACL is the line of the README that names what a user needs.
func documentedACL(t *testing.T) []any {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ +(\+eval .*)$`).FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("the README has no ACL line")
	}
	var rules []any
	for _, rule := range strings.Fields(line[1]) {
		rules = append(rules, rule)
	}
	return rules
}

// holds E7: the documented permissions suffice, and none can be left out.
func TestTheDocumentedPermissionsAreWhatScriptsNeed(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	ctx := context.Background()
	rules := documentedACL(t)
	for without := range len(rules) + 1 {
		if err := admin.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		admin.ScriptFlush(ctx)
		granted := append([]any{"ACL", "SETUSER", "limiter", "reset", "on", ">password"}, rules...)
		if without < len(rules) {
			granted = append(granted[:6+without:6+without], granted[7+without:]...)
		}
		if err := admin.Do(ctx, granted...).Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&redis.Options{
			Addr: server.Addr, Username: "limiter", Password: "password", ContextTimeoutEnabled: true, DisableIdentity: true,
		})
		err := useEverything(t, MustNew(c, Options{Timeout: patient}), admin)
		c.Close()
		if without == len(rules) && err != nil {
			t.Errorf("with all of %v: %v", rules, err)
		}
		if without < len(rules) && err == nil {
			t.Errorf("%v is not needed", rules[without])
		}
	}
}

// useEverything has every algorithm take, refuse, refund and reset, and meets
// an unreadable key. It returns the first error of permissions.
func useEverything(t *testing.T, s *Store, admin *redis.Client) error {
	t.Helper()
	ctx := context.Background()
	for _, text := range everyAlgorithm {
		op := core.Op{Rule: "r", Key: text, Limit: limit(t, text), Cost: 10, Lease: "a"}
		for _, verb := range []core.Verb{core.Take, core.Peek, core.Take, core.Refund, core.Take, core.Reset} {
			op.Verb, op.Lease = verb, op.Lease+"x"
			if verb == core.Refund {
				op.Lease = "ax"
			}
			if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); err != nil {
				return err
			}
		}
	}
	op := core.Op{Rule: "r", Key: "list", Limit: limit(t, "1/1h"), Cost: 1}
	admin.RPush(ctx, string(s.key(nil, "list", "r", "g")), "x")
	err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1))
	if err != nil && strings.Contains(err.Error(), "unreadable") {
		return nil
	}
	return err
}
