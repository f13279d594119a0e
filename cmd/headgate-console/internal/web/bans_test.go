package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

var midday = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bansWorld has the policies p of the application a and q of b, which ban.
func bansWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return midday } })
	for name, app := range map[string]string{"p": "a", "q": "b"} {
		_, err := w.CreatePolicy(t.Context(), w.admin,
			policy.Policy{Name: name, Apps: []string{app}, Limit: limit("5/1m"), Key: "user",
				Ban: core.MustParseBan("20/1m for 10m max 24h")})
		w.must(err)
	}
	w.policy("plain", "5/1m")
	return w
}

// ban adds bans of a policy that end after midday.
func (w *world) ban(rule string, keys ...string) {
	for _, key := range keys {
		w.fleet.banned = append(w.fleet.banned,
			core.Banned{Rule: rule, Key: key, Until: midday.Add(90 * time.Second).UnixMicro()})
	}
}

func (w *world) audited(action string) []service.Entry {
	w.t.Helper()
	rows, err := w.Audit(w.t.Context(), w.admin, service.AuditQuery{Action: action, PerPage: service.MaxPerPage})
	w.must(err)
	return rows
}

func TestBansAreListedAndLifted(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	if got := b.get("/bans").want(http.StatusOK); !strings.Contains(got.text, "No key is banned.") {
		t.Errorf("without a ban: %s", got.text)
	}

	// Alice is banned under both policies, and only one of the two is lifted.
	w.ban("p", "alice", "bob")
	w.ban("q", "alice")

	got := b.get("/bans").want(http.StatusOK)
	if row := got.rows()["bob"]; row != "p | 2026-03-01 12:01:30 | 1m30s | Lift…" {
		t.Errorf("the row is %q", row)
	}

	got = b.get("/bans?policy=p").want(http.StatusOK)
	if n := strings.Count(got.text, ">Lift…</button>"); n != 2 {
		t.Errorf("%d bans under p", n)
	}

	// The first answer is a question, after which all three are still banned.
	question := b.post("/keys/lift", got.form("/keys/lift")).want(http.StatusOK)
	if len(w.fleet.banned) != 3 {
		t.Error("the question has lifted the ban")
	}

	b.post("/keys/lift", question.form("/keys/lift")).goes("/bans?policy=p&done=lifted")
	if left := w.fleet.banned; len(left) != 2 || left[0].Key != "bob" || left[1].Rule != "q" {
		t.Errorf("the bans are %v", left)
	}

	rows := w.audited("ban.lift")
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Object != "policy:p" ||
		rows[0].Outcome != service.Done || rows[0].After != `{"key":"alice"}` {
		t.Errorf("the audit log says %+v", rows)
	}

	if got := b.get("/bans?policy=plain").
		want(http.StatusOK); !strings.Contains(got.text, "No policy bans by this name") {
		t.Errorf("of a policy without bans: %s", got.text)
	}
}

func TestLiftNeedsAnOwner(t *testing.T) {
	w := bansWorld(t)

	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	w.ban("p", "alice")
	w.ban("q", "bob")

	b := w.as("viewer")
	got := b.get("/bans").want(http.StatusOK)

	// A viewer of a sees its bans without a button, and none of b.
	if rows := got.rows(); rows["alice"] == "" || rows["bob"] != "" || got.form("/keys/lift") != nil {
		t.Errorf("a viewer of a sees %q", rows)
	}

	form := func(policy, sent string) url.Values {
		return url.Values{"policy": {policy}, "sent": {sent}, "confirm": {"yes"}}
	}

	// A ban that one may see is refused, and one that one may not see is not there.
	b.post("/keys/lift", form("p", sentForm("alice"))).want(http.StatusForbidden)
	b.post("/keys/lift", form("q", sentForm("bob"))).want(http.StatusUnprocessableEntity)
	if len(w.fleet.banned) != 2 {
		t.Errorf("the bans are %v", w.fleet.banned)
	}

	// An administrator may, but not by a form of another site, and not for a key that is no base64.
	admin := w.as("admin")
	admin.post("/keys/lift", form("p", "=")).want(http.StatusBadRequest)
	admin.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	admin.post("/keys/lift", form("p", sentForm("alice"))).want(http.StatusForbidden)

	if len(w.fleet.banned) != 2 {
		t.Errorf("another site has lifted one of %v", w.fleet.banned)
	}
}

// A key holds whatever a client sent. The page shows it as text, and lifts just its ban.
func TestBansOfHostileKeys(t *testing.T) {
	w := bansWorld(t)
	b := w.as("admin")

	// Spaces and line ends make keys that look alike: each has its own row and its own ban.
	keys := append(injections(), "", " x", "x", `"x"`, "a\x00b", "a\r\nb", "a\nb", "\xff\xfe", "\u202eabc", "\u200b",
		"a\tb", strings.Repeat("k", 1000))
	w.ban("p", keys...)

	got := b.get("/bans").want(http.StatusOK)
	got.harmless("/bans")
	rows := got.rows()
	if len(rows) != len(keys)+1 { // and the head
		t.Errorf("%d rows for %d keys", len(rows), len(keys))
	}

	for _, key := range keys {
		if rows[strings.TrimSpace(readable(key))] == "" {
			t.Errorf("%q is not shown", key)
		}
	}

	// The first ban of the list is lifted each time, so a ban of another key would be noticed at
	// once.
	for i, key := range keys {
		question := b.post("/keys/lift", b.get("/bans").want(http.StatusOK).form("/keys/lift")).want(http.StatusOK)
		question.harmless(key)
		b.post("/keys/lift", question.form("/keys/lift")).goes("/bans?done=lifted")

		for _, left := range w.fleet.banned {
			if left.Key == key {
				t.Fatalf("%q is still banned", key)
			}
		}

		if len(w.fleet.banned) != len(keys)-i-1 {
			t.Fatalf("after %q %d bans are left", key, len(w.fleet.banned))
		}
	}

	if n := len(w.audited("ban.lift")); n != len(keys) {
		t.Errorf("%d lines in the audit log", n)
	}
}

func TestReadableKeys(t *testing.T) {
	for key, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "dave smith": "dave smith", "Zoë": "Zoë", "<b>": "<b>",
		"": `""`, " x": `" x"`, `"x"`: strconv.Quote(`"x"`), "\u202eabc": `"\u202eabc"`, "\xff": `"\xff"`,
		"a\x00": `"a\x00"`,
	} {
		if got := readable(key); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}

func TestBansShowAtMostSoMany(t *testing.T) {
	w := bansWorld(t)
	for i := range maxBans + 3 {
		w.ban("p", fmt.Sprint("k", i))
	}
	got := w.as("admin").get("/bans").want(http.StatusOK)
	if n := len(got.rows()); n != maxBans+1 || !strings.Contains(got.text, "and 3 more keys") {
		t.Errorf("%d rows", n)
	}
}

func TestBansWithoutRedis(t *testing.T) {
	w := bansWorld(t)
	w.ban("p", "alice")

	b := w.as("admin")
	form := b.get("/bans").form("/keys/lift")
	form.Set("confirm", "yes")

	// An address in the error is not for everyone's eyes.
	w.fleet.away = errors.New("dial 10.0.0.1: refused")
	if got := b.get("/bans").want(http.StatusOK); !strings.Contains(got.text, "Redis does not answer") ||
		strings.Contains(got.text, "10.0.0.1") {
		t.Errorf("the page is %s", got.text)
	}

	// The attempt is audited before it is made: what failed is in the log with its failure.
	b.post("/keys/lift", form).want(http.StatusServiceUnavailable)
	if rows := w.audited("ban.lift"); len(rows) != 2 || rows[0].Outcome != service.Refused ||
		rows[1].Outcome != service.Done {
		t.Errorf("the audit log says %+v", rows)
	}

	// A console without Redis has no bans, and says why.
	none := newWorld(t, func(o *Options) { o.Fleet = nil })
	b = none.as("admin")
	if got := b.get("/bans").want(http.StatusOK); !strings.Contains(got.text, "started without Redis") {
		t.Errorf("without Redis: %s", got.text)
	}
	b.post("/keys/lift", url.Values{"policy": {"p"}, "sent": {"eA"}, "confirm": {"yes"}}).
		want(http.StatusUnprocessableEntity)
}
