package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy/redissource"
)

// foreignWorld has a Redis with the policies of another database.
func foreignWorld(t *testing.T) (*world, *publish.Takeover) {
	lost := &publish.Takeover{Version: `9.<b>"x`, Gone: []string{"<i>login"}, Changed: []string{"api", "web"}}
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := newWorld(t, func(o *Options) {
		o.Publishing = func() publish.Status {
			return publish.Status{Since: since, Failures: 1, Err: fmt.Errorf("x: %w", &publish.ForeignError{
				Published: redissource.Published{Version: "9.x", Origin: redissource.Origin{Database: "theirs"}}})}
		}
		o.Takeover = func(context.Context) (publish.Takeover, error) { return *lost, nil }
	})
	return w, lost
}

func TestBannerSaysWhoseThePoliciesAre(t *testing.T) {
	w, _ := foreignWorld(t)
	w.person("owner", map[string]service.Role{"a": service.Owner})
	w.policy("p", "5/1m")

	const text = "The policies are not published, since 2026-03-01 12:00:00. " +
		"Redis has the policies of another database, and they stay. The newest changes are saved and not in force. "
	for user, more := range map[string]string{
		service.FirstUser: "Take over", "owner": "An administrator can take over.",
	} {
		for _, page := range []string{"/", "/policies", "/policies/p", "/new", "/apps", "/account", "/import"} {
			n := w.as(user).get(page).want(http.StatusOK).byID("banner")
			if n == nil || strings.Join(strings.Fields(words(n)), " ") != text+more {
				t.Errorf("%s sees on %s: %q", user, page, words(n))
			}
		}
	}
}

func TestTakeOverSaysFirstWhatIsLost(t *testing.T) {
	w, lost := foreignWorld(t)
	b := w.as(service.FirstUser)
	asked := b.get("/takeover").want(http.StatusOK)
	asked.legible("the question")
	for _, want := range []string{
		"1 policy is in Redis and not in this database, and will not apply any more: <i>login.",
		"2 policies are otherwise in this database, and will apply as they are here: api, web."} {
		if !strings.Contains(words(asked.doc), want) {
			t.Errorf("it does not say %q:\n%s", want, words(asked.doc))
		}
	}
	asked.lacks("<i>", `<b>"x`)
	form := asked.form("/takeover")
	if form.Get("version") != publish.Digest(lost.Version) || form.Get("confirm") != "yes" {
		t.Errorf("the form is %v", form)
	}

	// Another version is published meanwhile, so the answer is the question about it.
	lost.Version, lost.Gone = "10.y", []string{"other"}
	again := b.post("/takeover", form).want(http.StatusOK)
	form = again.form("/takeover")
	if form.Get("version") != publish.Digest("10.y") || !strings.Contains(again.text, "other") {
		t.Errorf("the question is %s", again.text)
	}
	before, err := w.Outbox().Owner(t.Context())
	w.must(err)
	if before.Replaces != "" {
		t.Errorf("it took over without a question: %+v", before)
	}

	// A page of another site can send no form, and an owner takes nothing over.
	foreign, err := http.NewRequestWithContext(t.Context(), "POST", b.url+"/takeover", strings.NewReader(form.Encode()))
	w.must(err)
	foreign.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	b.do(foreign).want(http.StatusForbidden)

	b.post("/takeover", form).goes("/?done=takeover")
	after, err := w.Outbox().Owner(t.Context())
	w.must(err)
	if after.Replaces != publish.Digest("10.y") || after.Database == before.Database {
		t.Errorf("%+v, and before %+v", after, before)
	}
	rows, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "publishing.takeover", Outcome: service.Done})
	w.must(err)
	if len(rows) != 1 || rows[0].Before != "10.y" || !strings.HasPrefix(rows[0].After, "1 policy is in Redis") {
		t.Errorf("the audit log has %+v", rows)
	}
}

// Whatever another program has written for the version, the form says which one it is.
func TestTakeOverOfAnyVersion(t *testing.T) {
	w, lost := foreignWorld(t)
	b := w.as(service.FirstUser)
	for version, shown := range map[string]string{
		"7.abc":                  "7.abc",
		strings.Repeat("9", 300): strings.Repeat("9", 100) + "…",
		"10.\xff\xfe":            `"10.\xff\xfe"`,
		"10.\x00<b>":             `"10.\x00<b>"`,
	} {
		lost.Version = version
		b.post("/takeover", b.get("/takeover").want(http.StatusOK).form("/takeover")).goes("/?done=takeover")
		owner, err := w.Outbox().Owner(t.Context())
		w.must(err)
		rows, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "publishing.takeover"})
		w.must(err)
		if owner.Replaces != publish.Digest(version) || rows[0].Before != shown {
			t.Errorf("%q: %+v, and the audit log has %q", version, owner, rows[0].Before)
		}
	}
}

// What is unknown, what is much, and what is nothing.
func TestTakeOverBoundsWhatIsLost(t *testing.T) {
	w, lost := foreignWorld(t)
	b := w.as(service.FirstUser)
	lost.Gone, lost.Changed = nil, nil
	for i := range maxLost + 1234 {
		lost.Gone = append(lost.Gone, fmt.Sprintf("p%04d", i))
	}
	if got := b.get("/takeover").want(http.StatusOK).text; !strings.Contains(got, "1,284 policies are in Redis") ||
		!strings.Contains(got, "p0049 and 1,234 more.") || strings.Contains(got, "p0050") {
		t.Errorf("%s", got)
	}

	*lost = publish.Takeover{Version: "9.x", Unknown: true}
	if got := b.get("/takeover").want(http.StatusOK).text; !strings.Contains(got, "cannot be read here, and are lost") {
		t.Errorf("%s", got)
	}

	// Overrides and bans are counted, and what is none of a kind is not named.
	*lost = publish.Takeover{Version: "9.x", Bans: publish.Fate{Gone: 1, Changed: 2, Stay: 1234},
		Overrides: publish.Fate{Gone: 3, Stay: 1}, Uncounted: true}
	asked := b.get("/takeover").want(http.StatusOK)
	for _, want := range []string{
		"This database has all policies that are in Redis, as they are there. " +
			"In Redis and not in this database, and will not apply any more: 1 ban and 3 overrides. " +
			"Otherwise in this database, and will apply as it has them: 2 bans. " +
			"In this database as in Redis, and stay: 1,234 bans and 1 override.",
		"Redis may have more overrides and bans than are counted here."} {
		if got := strings.Join(strings.Fields(words(asked.doc)), " "); !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	asked.lacks("none is lost")

	*lost = publish.Takeover{Version: "9.x"}
	if got := b.get("/takeover").want(http.StatusOK).text; !strings.Contains(got, "none is lost") {
		t.Errorf("%s", got)
	}
	lost.Version = ""
	b.get("/takeover").goes("/")
	b.post("/takeover", url.Values{"confirm": {"yes"}}).goes("/")
}
