package e2e

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestOnePolicyThatCannotBeCarriedOut saves a policy by a user, whom the shop does not know. The
// other policies change on, and every page says which instance leaves out which policy.
func TestOnePolicyThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	browser := chromium(t)
	console, shop := build(t)
	server := redistest.Start(t)

	l := serveBy(t, console, "redis://"+server.Addr)
	api := map[string]any{"apps": []string{"shop"}, "limit": "1000/1h fixed-window", "key": "ip"}
	l.call("PUT", "/api/policies/api", api, nil)
	l.published()
	fleet := openShops(t, shop, server.Addr)

	// The console reads the reports once a second.
	l.settles(func() error {
		var v struct{ Instances []struct{ ID string } }
		if l.call("GET", "/api/instances", nil, &v); len(v.Instances) != 2 {
			return fmt.Errorf("%d instances have reported", len(v.Instances))
		}
		return nil
	})

	// The API saves it, in shadow, with a warning.
	var saved struct{ Warnings []string }
	perUser := map[string]any{"apps": []string{"shop"}, "limit": "100/1m", "key": "user", "mode": "shadow"}
	fleet.follow("the policy by user", func() { l.call("PUT", "/api/policies/per-user", perUser, &saved) })
	if len(saved.Warnings) != 1 {
		t.Errorf("the warnings are %q", saved.Warnings)
	}

	api["name"], api["limit"] = "api", "5/1h fixed-window"
	tighter := map[string]any{"policies": []any{api}}
	fleet.follow("a tighter limit", func() { l.call("POST", "/api/import", tighter, nil) })
	fleet.meets(20, 5)

	b := browse(t, browser)
	j := &journey{t: t, console: l.console, redis: server, fleet: fleet, tab: b}
	b.navigate(j.url("/"))
	b.fill("Name", "admin")
	b.fill("Password", "the password of a load")
	b.press("Sign in")
	const why = `the program does not set Bindings.User`
	for _, page := range []string{"/policies", "/policies/per-user", "/policies/api"} {
		b.navigate(j.url(page))
		b.reads("Not everything is in force", "per-user, version 1, is not in force in", why)
	}
	j.fits(b)

	// No confirmation of a change looks as if all were well.
	b.switchTo("In shadow", "")
	b.reads("The mode was changed.", why)
	if eval[bool](b, `document.querySelector(".notice.done") !== null`) {
		t.Error("there is a notice of success")
	}

	// The form does not offer it.
	b.navigate(j.url("/new?app=shop"))
	b.reads("No instance of shop can do this:")
	if !eval[bool](b, `document.querySelector("#key option[value=user]").disabled`) {
		t.Error("the form offers what no instance can do")
	}
	b.quiet()
}
