package e2e

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy/redissource"
)

// TestTwoDatabasesOnOneRedis has a second console with another database on the Redis of the first
// one: the user is told, and takes over by a button.
func TestTwoDatabasesOnOneRedis(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	browser := chromium(t)
	console, shop := build(t)
	server := redistest.Start(t)

	first := serveBy(t, console, "redis://"+server.Addr)
	first.policy("production", "5/1h")
	first.published()
	fleet := openShops(t, shop, server.Addr)

	other := start(t, "second console", console, nil, "-data", t.TempDir(), "-redis", "redis://"+server.Addr,
		"-listen", "127.0.0.1:0")
	j := &journey{t: t, console: other, redis: server, fleet: fleet, tab: browse(t, browser)}
	j.signIn()
	b := j.tab
	b.reads("The policies are not published", "Redis has the policies of another database, and they stay.")
	j.addApp()

	// The first save is kept from Redis, and the page of the policy says so.
	b.press("New policy of shop")
	b.fill("Name", "experiment")
	b.fill("Requests", "1000")
	b.press("Create in shadow")
	b.reads("The policy was created.", "The newest changes are saved and not in force.")

	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Load(t.Context(), "")
	if err != nil || len(s.Policies) != 1 || s.Policies[0].Name != "production" {
		t.Errorf("Redis has %+v, %v", s, err)
	}

	b.press("Take over")
	b.reads("1 policy is in Redis and not in this database, and will not apply any more: production.")
	j.fits(b)
	version, policies := fleet.follow("a take-over", func() { b.press("Take over") })
	if version == s.Version || policies != "1" {
		t.Errorf("the version %s has %s policies", version, policies)
	}
	b.navigate(j.url("/policies"))
	b.until("the banner is gone", func() bool { return !b.says("The policies are not published") })
	b.quiet()
}
