package e2e

import (
	"context"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// buildGateway compiles the gateway.
func buildGateway(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "..", "headgate-gateway")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// gate is a gateway that follows the console.
type gate struct {
	*program
	client *http.Client
}

// passes reports whether the gateway lets a request of a user pass.
func (g *gate) passes(user string) bool {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "http://"+g.address+"/auth", http.NoBody)
	if err != nil {
		g.t.Fatal(err)
	}
	for name, text := range map[string]string{"User": user,
		"Forwarded-Method": "GET", "Forwarded-Uri": "/jobs", "Forwarded-Host": "localhost", "Forwarded-Proto": "https",
		"Forwarded-For": "127.0.0.9"} {
		r.Header.Set("X-"+name, text)
	}
	a, err := g.client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	a.Body.Close()
	switch a.StatusCode {
	case http.StatusOK:
		return true
	case http.StatusTooManyRequests:
		return false
	}
	g.t.Fatalf("%s answers %s", g.name, a.Status)
	return false
}

const (
	// promised is how soon a change is in force, and bound is what a machine with much else to do
	// may take.
	promised = time.Second
	bound    = 10 * time.Second
)

// TestTeamHasMoreUntilFriday raises the limit of a team until an instant, with one request to the
// API and with the form of the page. Two gateways, which are processes of their own, have it in
// force soon after the answer, and no longer at the instant.
func TestTeamHasMoreUntilFriday(t *testing.T) {
	t.Parallel()
	console, _ := build(t)
	gateway, server := buildGateway(t), redistest.Start(t)
	l := serveBy(t, console, "redis://"+server.Addr)
	l.call("PUT", "/api/policies/team", map[string]any{"apps": []string{"shop"}, "limit": "4/1h sliding-log",
		"key": "user"}, nil)
	l.published()

	gates := make([]*gate, 2)
	for i, name := range []string{"one", "two"} {
		p := start(t, name, gateway, nil, "-listen", "127.0.0.1:0", "-app", "shop", "-redis", "redis://"+server.Addr,
			"-redis-timeout", "10s", "-trusted-proxy", "127.0.0.1", "-user-header", "X-User")
		gates[i] = &gate{p, &http.Client{Timeout: patience}}
	}

	const more = "1000/1h sliding-log"
	raise(t, gates, "acme:batch", func(until time.Time) {
		l.call("PUT", "/api/policies/team/overrides/"+url.PathEscape("acme:*"),
			map[string]any{"limit": more, "until": until.Format(time.RFC3339)}, nil)
	})

	// The answer to a form is a redirection, and not the page that it leads to.
	once := *l.client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	raise(t, gates, "globex", func(until time.Time) {
		a, err := once.PostForm("http://"+l.console.address+"/policies/team/overrides", url.Values{
			"key": {"globex"}, "limit": {more}, "until": {until.Format("2006-01-02T15:04:05")}})
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		to := a.Header.Get("Location")
		if a.StatusCode != http.StatusSeeOther || !strings.HasSuffix(to, "=override") {
			t.Fatalf("the form answers %s to %q", a.Status, to)
		}
	})
}

// raise has a user use all units of the limit, and sets a higher one until an instant.
func raise(t *testing.T, gates []*gate, user string, set func(until time.Time)) {
	t.Helper()
	for i := range 4 {
		if !gates[i%2].passes(user) {
			t.Fatalf("%s: request %d of 4 is refused", user, i+1)
		}
	}
	all := func(want bool) bool { return gates[0].passes(user) == want && gates[1].passes(user) == want }
	if !all(false) {
		t.Fatalf("%s: the gateways do not refuse at the limit", user)
	}

	// A machine that takes longer to answer than the higher limit lasts gets another chance.
	var until time.Time
	for span := bound + 5*time.Second; ; span *= 2 {
		until = time.Now().Add(span).Truncate(time.Second).UTC()
		set(until)
		answered := time.Now()
		in := eventually(t, answered.Add(bound), func() bool { return all(true) })
		if now := time.Now(); in {
			t.Logf("%s: in force in both %s after the answer, promised within %s", user, now.Sub(answered), promised)
			break
		} else if now.Before(until) {
			t.Fatalf("%s: not in force in both %s after the answer", user, now.Sub(answered))
		} else if span > patience {
			t.Fatalf("%s: no answer within %s", user, span)
		}
	}

	// The clocks of the gateways are that of this test.
	select {
	case <-time.After(time.Until(until)):
	case <-t.Context().Done():
	}
	if !eventually(t, time.Now().Add(bound), func() bool { return all(false) }) {
		t.Fatalf("%s: the higher limit is in force after its end", user)
	}
	t.Logf("%s: both are back %s after the end", user, time.Since(until))
}

// eventually asks again and again, and reports whether it was so by the deadline.
func eventually(t *testing.T, deadline time.Time, is func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return is()
		case <-tick.C:
		}
	}
	return true
}
