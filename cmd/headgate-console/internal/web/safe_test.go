package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// byClass returns the texts of the elements with a class.
func (a *answer) byClass(class string) (list []string) {
	a.each(func(n *html.Node) {
		if slices.Contains(strings.Fields(attr(n, "class")), class) {
			list = append(list, strings.Join(strings.Fields(words(n)), " "))
		}
	})
	return list
}

func (w *world) version(name string) int64 {
	w.t.Helper()
	p, err := w.Policy(w.t.Context(), w.admin, name)
	w.must(err)
	return p.Version
}

// Each of these is asked before it is done, and nothing happens on the way.
func TestConfirmationComesBeforeTheChange(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	w.person("ada", nil)
	b := w.as("admin")

	// Each row is a change that protects less, gives power away or ends sessions, so one click must
	// not suffice.
	for _, c := range []struct {
		page, action string
		form         url.Values
		title, says  string
	}{
		{"/policies/p", "/policies/p/mode", url.Values{"mode": {"off"}}, "Turn off the policy p?",
			"the instances of a do not apply it"},
		{"/policies/p", "/policies/p/mode", url.Values{"mode": {"off"}}, "Turn off the policy p?",
			"it refused none of 0 requests"},
		{"/policies", "/policies/bulk", url.Values{"policy": {"1:p"}, "do": {"off"}}, "Switch 1 policy off?",
			"they refused 0 requests"},
		{"/policies/p/edit", "/policies/p/edit", url.Values{"mode": {"off"}, "do": {"save"}},
			"Turn off the policy p?", "Its settings and its history stay"},
		{"/users/ada", "/users/ada/status", url.Values{"do": {"promote"}}, "Make ada an administrator?",
			"manage users"},
		{"/users/admin", "/users/admin/status", url.Values{"do": {"demote"}}, "Give up being an administrator?",
			"Only another administrator can take this back"},
		{"/users/admin", "/users/admin/status", url.Values{"do": {"disable"}}, "Disable yourself?",
			"All your sessions end at once"},
		{"/users/ada", "/users/ada/password", nil, "Give ada a new one-time password?",
			"all sessions and API tokens of ada end at once"},
	} {
		got := b.submit(c.page, c.action, c.form).want(http.StatusOK)
		var head string
		got.each(func(n *html.Node) {
			if n.Data == "h1" {
				head = words(n)
			}
		})
		if head != c.title || !strings.Contains(got.text, c.says) {
			t.Errorf("%s %v: the page is %q and says %s", c.action, c.form, head, got.text)
		}

		got.legible(c.action)

		// The question sends all that the form sent: otherwise the confirmed change would be
		// another one.
		sent := got.form(c.action)
		for name, want := range c.form {
			if sent.Get("confirm") != "yes" || !slices.Equal(sent[name], want) {
				t.Errorf("%s: the confirmation sends %v, want %s=%s", c.action, sent, name, want)
			}
		}
	}

	// A version or a name that is sent without a confirmation is only asked about as well.
	b.post("/policies/p/delete", url.Values{"version": {"1"}}).want(http.StatusOK)
	b.post("/apps/delete", url.Values{"name": {"b"}}).want(http.StatusOK)

	if v := w.version("p"); v != 1 {
		t.Errorf("a question changed the policy to version %d", v)
	}

	u, err := w.User(t.Context(), w.admin, "ada")
	if err != nil || u.Administrator {
		t.Errorf("%+v %v", u, err)
	}

	// An agreed demotion of the last administrator would lock everyone out of the users.
	got := b.agree("/users/admin", "/users/admin/status", url.Values{"do": {"demote"}}).
		want(http.StatusUnprocessableEntity)
	if !strings.Contains(got.text, "the last administrator") {
		t.Errorf("%s", got.text)
	}
}

func TestConfirmationOfAnEditKeepsTheWholeForm(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")

	b.agree("/policies/p/edit", "/policies/p/edit", url.Values{"mode": {"off"}, "quota": {"9"},
		"description": {"<b>\nx"}, "comment": {"why <i>"}, "do": {"save"}}).goes("/policies/p?done=saved")

	p, err := w.Policy(t.Context(), w.admin, "p")
	if err != nil || p.Version != 2 || p.Mode != policy.Off || p.Limit.Quota != 9 || p.Description != "<b>\nx" {
		t.Errorf("%+v %v", p, err)
	}

	// The comment and the description hold markup and a new line, which the hidden fields of the
	// question must keep.
	if got := b.get("/policies/p/history").want(http.StatusOK).
		byClass("comment"); !slices.Equal(got, []string{"why <i>"}) {
		t.Errorf("the history shows the comments %q", got)
	}

	// The policy is off already, so that the second edit takes nothing away and is not asked about.
	b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"quota": {"10"}, "do": {"save"}}).
		goes("/policies/p?done=saved") // it is off already
}

func TestCommentTooLongIsAMistake(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")
	long := strings.Repeat("x", service.MaxComment+1)

	// The constant is written out in the message, so the comment is one byte beyond the 500.
	for _, c := range []struct{ page, action string }{
		{"/policies/p/edit", "/policies/p/edit"}, {"/policies/p/delete", "/policies/p/delete"},
	} {
		got := b.submit(c.page, c.action, url.Values{"comment": {long}, "quota": {"6"}}).
			want(http.StatusUnprocessableEntity)
		if got.mistake("comment") != "501 bytes are more than 500" {
			t.Errorf("%s: %q", c.action, got.mistake("comment"))
		}
	}

	if v := w.version("p"); v != 1 {
		t.Errorf("version %d", v)
	}
}

func TestUndoTakesBackWhatTheNoticeSays(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")

	mode := func(want policy.Mode) {
		t.Helper()
		if p, err := w.Policy(t.Context(), w.admin, "p"); err != nil || p.Mode != want {
			t.Errorf("the mode is %s, want %s (%v)", p.Mode, want, err)
		}
	}

	// An undo can be undone itself, which is how one returns to shadow.
	b.submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}}).goes("/policies/p?done=mode")
	b.submit("/policies/p?done=mode", "/policies/p/undo", nil).goes("/policies/p?done=undone")
	mode(policy.Enforce)
	b.submit("/policies/p?done=undone", "/policies/p/undo", nil).goes("/policies/p?done=undone")
	mode(policy.Shadow)

	// The undo returns to the mode before, which is shadow, and not to that of a new policy.
	b.agree("/policies/p", "/policies/p/mode", url.Values{"mode": {"off"}}).goes("/policies/p?done=mode")
	b.submit("/policies/p?done=mode", "/policies/p/undo", nil).goes("/policies/p?done=undone")
	mode(policy.Shadow)

	// A deletion is undone from the list, as the policy has no page.
	b.submit("/policies/p/delete", "/policies/p/delete", nil).goes("/policies?done=deleted&of=p")
	b.submit("/policies?done=deleted&of=p", "/policies/p/undo", nil).goes("/policies/p?done=undone")
	mode(policy.Shadow)

	// The other way round, an undo of what brought the policy back deletes it again.
	b.submit("/policies/p/delete", "/policies/p/delete", nil).goes("/policies?done=deleted&of=p")
	b.agree("/deleted", "/policies/p/rollback", nil).goes("/policies/p?done=rolledback")
	b.submit("/policies/p?done=rolledback", "/policies/p/undo", nil).goes("/policies?done=removed&of=p")

	if _, err := w.Policy(t.Context(), w.admin, "p"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("the policy is there: %v", err)
	}
	b.get("/policies?done=removed&of=p").want(http.StatusOK).legible("the list after an undo")
}

func TestUndoIsOfferedOnlyForOnesOwnNewestChange(t *testing.T) {
	at := time.Now()
	w := newWorld(t, func(o *Options) { o.Clock = func() time.Time { return at } })
	w.policy("p", "5/1m")
	w.person("owner", map[string]service.Role{"a": service.Owner})
	w.person("viewer", map[string]service.Role{"a": service.Viewer})
	b := w.as("admin")

	offered := func(b *browser, page string) bool {
		return b.get(page).want(http.StatusOK).form("/policies/p/undo") != nil
	}

	b.submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}}).goes("/policies/p?done=mode")

	// The form is kept for the end, when another change has come in between.
	stale := b.get("/policies/p?done=mode").form("/policies/p/undo")

	// The notice is what offers an undo: without it, or with one of something else, the page has
	// none.
	for page, want := range map[string]bool{"/policies/p?done=mode": true, "/policies?done=deleted&of=p": true,
		"/policies/p":             false,
		"/policies/p?done=lifted": false, "/policies?done=deleted&of=none": false, "/policies?done=deleted": false} {
		if got := offered(b, page); got != want {
			t.Errorf("%s: offered is %v, want %v", page, got, want)
		}
	}

	if offered(w.as("viewer"), "/policies/p?done=mode") || offered(w.as("owner"), "/policies/p?done=mode") {
		t.Error("the undo of another's change is offered")
	}

	// The limit of time is that of the console's clock, a minute beyond it is too late.
	at = at.Add(undoFor + time.Minute)
	if offered(b, "/policies/p?done=mode") {
		t.Error("an old change is offered")
	}

	// Back in time, the change is recent again, but the owner's edit is newer now.
	at = at.Add(-undoFor - time.Minute)
	w.as("owner").submit("/policies/p/edit", "/policies/p/edit", url.Values{"quota": {"77"}}).
		goes("/policies/p?done=saved")
	if offered(b, "/policies/p?done=mode") {
		t.Error("the undo over another's change is offered")
	}

	// Nobody is offered it, but the form that was kept is still sent: it must not take back the
	// owner's edit.
	got := b.post("/policies/p/undo", stale).want(http.StatusConflict)
	if !strings.Contains(got.text, "p was changed in the meantime") || w.version("p") != 3 {
		t.Errorf("version %d: %s", w.version("p"), got.text)
	}
}

func TestRollbackSaysWhatItChanges(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")

	b := w.as("admin")
	b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"quota": {"9"}, "path": {"/x"}}).
		goes("/policies/p?done=saved")

	got := b.submit("/policies/p/history", "/policies/p/rollback", nil).want(http.StatusOK)

	// Besides the limit and the path there is one row that heads the table.
	if rows := got.rows(); rows["Limit"] != "9/1m | 5/1m" || rows["Path"] != "/x | nothing" || len(rows) != 3 {
		t.Errorf("the confirmation shows %q", rows)
	}

	// The rollback keeps a comment of its own in the history, as an edit does.
	form := got.form("/policies/p/rollback")
	form.Set("comment", "slower again")
	b.post("/policies/p/rollback", form).goes("/policies/p?done=rolledback")
	if got := b.get("/policies/p/history").byClass("comment"); !slices.Equal(got, []string{"slower again"}) {
		t.Errorf("%q", got)
	}

	// The versions 1 and 3 are the same policy, as the third is the rollback to the first.
	rows := b.get("/policies/p/diff?from=1&to=2").want(http.StatusOK).rows()
	if rows["Limit"] != "5/1m | 9/1m" || rows["Path"] != "nothing | /x" {
		t.Errorf("the comparison shows %q", rows)
	}
	if got := b.get("/policies/p/diff?from=1&to=3").
		want(http.StatusOK); !strings.Contains(got.text, "Nothing differs.") {
		t.Errorf("%s", got.text)
	}

	b.get("/policies/p/diff?from=x&to=-1").want(http.StatusUnprocessableEntity).legible("a comparison with mistakes")
	b.get("/policies/p/diff?from=1&to=99").want(http.StatusNotFound)
	b.post("/policies/p/rollback", url.Values{"to": {"99"}, "version": {"3"}}).want(http.StatusNotFound)
}

// bannerWorld has a publisher with a status that tests set.
func bannerWorld(t *testing.T) (*world, *publish.Status) {
	status := &publish.Status{At: time.Now()}
	return newWorld(t, func(o *Options) { o.Publishing = func() publish.Status { return *status } }), status
}

func TestBannerSaysWhatIsNotInForce(t *testing.T) {
	w, status := bannerWorld(t)
	w.person("owner", map[string]service.Role{"a": service.Owner})
	b, owner := w.as("admin"), w.as("owner")
	shown := func(b *browser, page string) string {
		t.Helper()
		if n := b.get(page).byID("banner"); n != nil {
			return strings.Join(strings.Fields(words(n)), " ")
		}
		return ""
	}

	// publish does what the publisher does when Redis answers: the outbox has nothing left.
	publish := func() {
		t.Helper()
		v, _, _, err := w.Outbox().Pending(t.Context())
		w.must(err)
		w.must(w.Outbox().Published(t.Context(), v, "label"))
	}

	publish()
	for _, page := range []string{"/", "/policies", "/new", "/apps", "/account"} {
		if got := shown(b, page); got != "" {
			t.Errorf("%s: all is well, and the banner says %q", page, got)
		}
	}

	w.policy("p", "5/1m")
	b.submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}}).goes("/policies/p?done=mode")

	// The change is in the outbox and no attempt has failed yet.
	const pending = "The newest changes are saved, and are being published."
	for _, page := range []string{"/policies/p?done=mode", "/policies"} { // directly after the save
		if got := shown(b, page); got != pending {
			t.Errorf("%s: the banner says %q", page, got)
		}
	}

	// An address in the error is for administrators alone, as it tells how the network is built.
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	status.Err, status.Failures, status.Since = &net.OpError{Op: "dial", Err: errors.New("redis.internal refused")},
		3, since
	const away = "Redis does not answer, since 2026-03-01 12:00:00 UTC. The newest changes are saved and not in force yet: they will be as soon as they can be published."
	if got := shown(owner, "/policies/p?done=mode"); got != away {
		t.Errorf("the banner says %q", got)
	}

	if got := shown(b, "/policies"); got != away+" dial: redis.internal refused" {
		t.Errorf("the banner says %q", got)
	}

	if got := owner.get("/banner").want(http.StatusOK); !strings.Contains(got.text, "Redis does not answer") ||
		strings.Contains(got.text, "redis.internal") {
		t.Errorf("%s", got.text)
	}

	// Once all is published nothing waits, but Redis may still be away.
	publish()
	if got := shown(owner, "/policies"); got !=
		"Redis does not answer, since 2026-03-01 12:00:00 UTC. The instances go on with the policies that they have." {
		t.Errorf("the banner says %q", got)
	}

	// An error that is none of the network means that Redis refused the policies, and its text is
	// escaped.
	status.Err = fmt.Errorf("version 7: %w", errors.New("<b>it is refused</b>"))
	if got := shown(b, "/policies"); !strings.HasPrefix(got, "The policies cannot be published, since") ||
		!strings.HasSuffix(got, "version 7: <b>it is refused</b>") {
		t.Errorf("the banner says %q", got)
	}

	// A deadline is one of the network again.
	status.Err = context.DeadlineExceeded
	if got := shown(owner, "/policies"); !strings.HasPrefix(got, "Redis does not answer") {
		t.Errorf("the banner says %q", got)
	}

	*status = publish0
	w.wantNoBanner(b)
}

// wantNoBanner fails unless the banner is empty, and not on pages without a log-in.
func (w *world) wantNoBanner(b *browser) {
	t := w.t
	t.Helper()
	if got := b.get("/banner").want(http.StatusOK); strings.TrimSpace(got.text) != "" {
		t.Errorf("all is well, and the banner is %q", got.text)
	}
	if got := w.browser().get("/login").byID("banner"); got != nil {
		t.Error("the banner is shown without a log-in")
	}
}

// publish0 is the status of a publisher that works.
var publish0 publish.Status

// countingFleet counts the calls that a Redis would get.
type countingFleet struct {
	Fleet
	calls int
}

func (f *countingFleet) Published(ctx context.Context) (string, error) {
	f.calls++
	return f.Fleet.Published(ctx)
}

func TestBannerAsksNoRedis(t *testing.T) {
	counting := &countingFleet{}
	w := newWorld(t, func(o *Options) {
		counting.Fleet, o.Fleet = o.Fleet, counting
		o.Publishing = func() publish.Status { return publish.Status{Err: errors.New("away"), Failures: 1} }
	})
	b := w.as("admin")
	for _, page := range []string{"/policies", "/apps", "/account", "/banner", "/import", "/users"} {
		b.get(page).want(http.StatusOK)
	}
	if counting.calls != 0 {
		t.Errorf("%d calls of Redis", counting.calls)
	}
}

func TestScheduleModeAtATime(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")
	at := time.Now().UTC().AddDate(0, 0, 7).Truncate(time.Minute)

	// The form has local times without an offset, so the zone decides which instant is meant.
	local := func(zone string) string {
		where, err := time.LoadLocation(zone)
		w.must(err)
		return at.In(where).Format("2006-01-02T15:04")
	}

	form := url.Values{"do": {"at"}, "version": {"1"}, "mode": {"shadow"}, "zone": {"Asia/Kolkata"},
		"at": {local("Asia/Kolkata")}, "comment": {"<i>fair</i>"}}
	b.post("/policies/p/schedule", form).goes("/policies/p?done=scheduled")

	list, err := w.Coming(t.Context(), w.admin)
	if err != nil || len(list) != 1 || !list[0].At.Equal(at) || list[0].Comment != "<i>fair</i>" {
		t.Fatalf("%+v %v", list, err)
	}

	for page, action := range map[string]string{"/policies/p?done=scheduled": "/scheduled/cancel",
		"/scheduled": "/scheduled/cancel"} {
		got := b.get(page).want(http.StatusOK)
		got.legible(page)
		if !strings.Contains(got.text, "&lt;i&gt;fair&lt;/i&gt;") || got.form(action).Get("id") != list[0].ID {
			t.Errorf("%s does not show the change: %s", page, got.text)
		}
	}

	// To turn off protects less, so it is asked about first, with the time in the zone of the form.
	off := url.Values{"do": {"at"}, "version": {"1"}, "mode": {"off"}, "zone": {"UTC"}, "at": {local("UTC")}}
	question := b.post("/policies/p/schedule", off).want(http.StatusOK)
	if !strings.Contains(question.text, "From "+local("UTC")+" (UTC) the instances of a do not apply it") {
		t.Errorf("%s", question.text)
	}

	b.post("/policies/p/schedule", question.form("/policies/p/schedule")).goes("/policies/p?done=scheduled")
	b.submit("/policies/p", "/scheduled/cancel", nil).goes("/policies/p?done=canceled")
	b.submit("/scheduled", "/scheduled/cancel", nil).goes("/scheduled?done=canceled")

	// Both changes are canceled, the one from the policy's page and the other from the list.
	if list, err := w.Coming(t.Context(), w.admin); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	b.post("/scheduled/cancel", url.Values{"id": {list[0].ID}}).want(http.StatusUnprocessableEntity)
}

// The policy was of b alone when its changes were scheduled, and is of a and b now.
func TestScheduledChangeHidesWhatTheHistoryHides(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	p, err := w.CreatePolicy(ctx, w.admin,
		policy.Policy{Name: "p", Apps: []string{"b"}, Limit: limit("5/1m"), Key: "ip"})
	w.must(err)
	mine := p
	mine.Limit = limit("4711/1h")
	for _, in := range []time.Duration{time.Minute, time.Hour} {
		_, err = w.Schedule(ctx, w.admin.Saying("on the quiet"), mine, w.now().Add(in))
		w.must(err)
	}
	p.Apps, p.Limit = []string{"a", "b"}, limit("6/1m")
	_, err = w.UpdatePolicy(ctx, w.admin, p)
	w.must(err)
	w.pass(2 * time.Minute)
	_, _, err = w.Calendar().Run(ctx) // the first one is not made
	w.must(err)

	// The policy belongs to a and b now, and the change to b alone: a viewer of a may know that one
	// waits.
	for app, sees := range map[string]bool{"a": false, "b": true} {
		w.person("of-"+app, map[string]service.Role{app: service.Viewer})
		b := w.as("of-" + app)
		for _, page := range []string{"/scheduled", "/policies/p"} {
			got := b.get(page).want(http.StatusOK)
			got.legible(page)
			if n := strings.Count(got.text, "What it changes is hidden from you."); n != 1 && !sees || n != 0 && sees {
				t.Errorf("%s says %d times to the viewer of %s that it is hidden", page, n, app)
			}

			// The values before and after would reveal what the other application limits.
			for _, secret := range []string{"4711", "5/1m", "on the quiet"} {
				if strings.Contains(got.text, secret) != sees {
					t.Errorf("%s shows the viewer of %s %q: %v, want %v", page, app, secret, !sees, sees)
				}
			}

			if page == "/policies/p" && strings.Contains(got.text, "A change was not made") != sees {
				t.Errorf("the viewer of %s sees the change that was not made: %v, want %v", app, !sees, sees)
			}
		}
	}
}

func TestScheduleSaysThatAUserHasAllThatMayWait(t *testing.T) {
	w := newWorld(t)
	at := time.Now().UTC().Add(48 * time.Hour)

	// A policy may have fewer changes than a user, so that more than one policy is needed to reach
	// the user's limit.
	for i := range service.MaxScheduledUser {
		if i%service.MaxScheduledPolicy == 0 {
			w.policy(fmt.Sprint("p", i/service.MaxScheduledPolicy), "5/1m")
		}
		p, err := w.Policy(t.Context(), w.admin, fmt.Sprint("p", i/service.MaxScheduledPolicy))
		w.must(err)
		p.Mode = policy.Shadow
		_, err = w.Schedule(t.Context(), w.admin, p, at)
		w.must(err)
	}

	w.policy("p", "5/1m")

	// Each of the three ways to schedule says it, and none changes the policy at once.
	b, then := w.as("admin"), at.Format("2006-01-02T15:04")
	for what, got := range map[string]*answer{
		"at a time": b.post("/policies/p/schedule",
			url.Values{"version": {"1"}, "do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {then}}),
		"for a time": b.post("/policies/p/schedule",
			url.Values{"version": {"1"}, "do": {"for"}, "mode": {"shadow"}, "for": {"1"}, "unit": {"hours"}}),
		"an edit": b.submit("/policies/p/edit", "/policies/p/edit",
			url.Values{"do": {"schedule"}, "quota": {"9"}, "at": {then}, "zone": {"UTC"}}),
	} {
		got.want(http.StatusUnprocessableEntity).legible(what)
		if text := "200 changes that you scheduled wait, and at most 200 may: cancel some first"; !strings.Contains(
			got.text, "<li>"+text+"</li>") {
			t.Errorf("%s: the page does not say %q: %s", what, text, got.text)
		}
	}

	if w.version("p") != 1 {
		t.Error("the policy was changed")
	}
}

func TestScheduleMistakesAreBesideTheFields(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")

	// Two days ahead is within the year that is permitted, in whatever zone the test runs.
	soon := time.Now().UTC().Add(48 * time.Hour).Format("2006-01-02T15:04")
	for _, c := range []struct {
		form  url.Values
		field string
		says  string
	}{
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {""}}, "at", "not a date and a time"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {"tomorrow"}}, "at",
			"not a date and a time"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {"2020-01-01T00:00"}}, "at",
			"it is not in the future"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {"9999-01-01T00:00"}}, "at",
			"more than a year ahead"},
		// Clocks in Berlin skip from 2 to 3 o'clock on this day.
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"Europe/Berlin"}, "at": {"2030-03-31T02:30"}}, "at",
			"skip this time"},
		// On this one they have the hour from 2 to 3 twice, so the time names two instants.
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"Europe/Berlin"}, "at": {"2030-10-27T02:30"}},
			"at", "twice"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {""}, "at": {soon}}, "zone",
			"not the name of a time zone"},
		// Local would be the zone of the server, and a path must not be opened as a file.
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"Local"}, "at": {soon}}, "zone",
			"not the name of a time zone"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"../etc/passwd"}, "at": {soon}}, "zone",
			"not the name of a time zone"},
		{url.Values{"do": {"at"}, "mode": {"x"}, "zone": {"UTC"}, "at": {soon}}, "mode", "choose one"},
		{url.Values{"do": {"for"}, "mode": {"shadow"}, "for": {"0"}, "unit": {"hours"}}, "for", "above 0"},
		// So many days overflow a duration.
		{url.Values{"do": {"for"}, "mode": {"shadow"}, "for": {"1000000000"}, "unit": {"days"}}, "for",
			"at most a year"},
		{url.Values{"do": {"for"}, "mode": {"shadow"}, "for": {"1"}, "unit": {"years"}}, "for", "above 0"},
		{url.Values{"do": {"for"}, "mode": {""}, "for": {"1"}, "unit": {"hours"}}, "for_mode", "choose one"},
		{url.Values{"do": {"at"}, "mode": {"shadow"}, "zone": {"UTC"}, "at": {soon}, "comment": {"\x00"}}, "comment",
			"control character"},
	} {
		c.form.Set("version", "1")
		got := b.post("/policies/p/schedule", c.form).want(http.StatusUnprocessableEntity)
		got.legible(c.form.Encode())
		if !strings.Contains(got.mistake(c.field), c.says) {
			t.Errorf("%v: beside %s is %q", c.form, c.field, got.mistake(c.field))
		}
	}

	// The policy is enforced already, so there is nothing to change at that time.
	b.post("/policies/p/schedule", url.Values{"version": {"1"}, "do": {"at"}, "mode": {"enforce"}, "zone": {"UTC"},
		"at": {soon}}).want(http.StatusUnprocessableEntity)

	if list, err := w.Coming(t.Context(), w.admin); err != nil || len(list) != 0 || w.version("p") != 1 {
		t.Errorf("%+v %v", list, err)
	}

	// The form of an edit has mistakes in the time as well, and keeps what else was filled in.
	edit := b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"do": {"schedule"}, "quota": {"9"},
		"at": {"then"}, "zone": {"UTC"}}).want(http.StatusUnprocessableEntity)
	if edit.mistake("at") == "" || edit.form("/policies/p/edit").Get("quota") != "9" {
		t.Errorf("%q %v", edit.mistake("at"), edit.form("/policies/p/edit"))
	}
	edit.legible("the form with a wrong time")

	b.submit("/policies/p/edit", "/policies/p/edit", url.Values{"do": {"schedule"}, "quota": {"9"}, "at": {soon},
		"zone": {"UTC"}}).goes("/policies/p?done=scheduled")
	list, err := w.Coming(t.Context(), w.admin)
	if want := []service.Change{{Field: "limit", Before: "5/1m", After: "9/1m"}}; err != nil || len(list) != 1 ||
		!slices.Equal(list[0].Changes, want) {
		t.Errorf("%+v %v", list, err)
	}
}

func TestSwitchForATime(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")

	form := url.Values{"do": {"for"}, "version": {"1"}, "mode": {"off"}, "for": {"2"}, "unit": {"hours"},
		"comment": {"repair"}}

	// One hour is singular, and two are not.
	form.Set("for", "1")
	if got := b.post("/policies/p/schedule", form).want(http.StatusOK); !strings.Contains(
		got.text, "From now, for 1 hour, the instances of a do not apply it") {
		t.Errorf("%s", got.text)
	}

	form.Set("for", "2")
	question := b.post("/policies/p/schedule", form).want(http.StatusOK)
	if !strings.Contains(question.text, "From now, for 2 hours, the instances of a do not apply it") {
		t.Errorf("%s", question.text)
	}
	b.post("/policies/p/schedule", question.form("/policies/p/schedule")).goes("/policies/p?done=until")

	// The way back is scheduled from the instant of the change, not from when the question was
	// asked.
	p, err := w.Policy(t.Context(), w.admin, "p")
	list, err2 := w.Coming(t.Context(), w.admin)
	if errors.Join(err, err2) != nil || p.Mode != policy.Off || len(list) != 1 ||
		!list[0].At.Equal(p.UpdatedAt.Add(2*time.Hour)) || list[0].Changes[0].After != "enforce" {
		t.Errorf("%+v %+v %v %v", p, list, err, err2)
	}

	b.submit("/policies/p?done=until", "/policies/p/undo", nil).goes("/policies/p?done=undone")
}

func TestBulkChangeIsUndoneInOneStep(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		w.policy(name, "5/1m")
	}
	b := w.as("admin")

	form := url.Values{"policy": {"1:one", "1:two"}, "do": {"off"}, "comment": {"for <b> the fair"}}
	question := b.post("/policies/bulk", form).want(http.StatusOK)
	done := b.post("/policies/bulk", question.form("/policies/bulk")).want(http.StatusSeeOther).header.Get("Location")

	if got := b.get("/policies/two/history").want(http.StatusOK).
		byClass("comment"); !slices.Equal(got, []string{"for <b> the fair"}) {
		t.Errorf("the history shows the comments %q", got)
	}

	// The undo names the versions that the change made, which protects what came after it.
	got := b.get(done).want(http.StatusOK)
	undo := got.form("/policies/undo")
	if !slices.Equal(undo["policy"], []string{"2:one", "2:two"}) ||
		!strings.Contains(got.text, "the change of 2 policies") {
		t.Fatalf("%s offers to undo %v", done, undo)
	}

	// Another change of one policy refuses the undo of both: half an undo would be neither state.
	two, err := w.Policy(t.Context(), w.admin, "two")
	w.must(err)
	two.Priority = 9
	_, err = w.UpdatePolicy(t.Context(), w.admin, two)
	w.must(err)

	refused := b.post("/policies/undo", undo).want(http.StatusConflict)
	if !strings.Contains(refused.text, "two was changed in the meantime, so nothing was changed") ||
		w.version("one") != 2 {
		t.Errorf("one has version %d: %s", w.version("one"), refused.text)
	}

	// With the version that two has now, the same undo is agreed to.
	undo["policy"][1] = "3:two"
	again := b.post("/policies/undo", undo).want(http.StatusSeeOther).header.Get("Location")
	if w.version("one") != 3 || w.version("two") != 4 {
		t.Errorf("the versions are %d and %d", w.version("one"), w.version("two"))
	}

	if got := b.get(again).want(http.StatusOK).
		form("/policies/undo"); !slices.Equal(got["policy"], []string{"3:one", "4:two"}) {
		t.Errorf("after the undo it offers %v", got)
	}

	// Only who made the change is offered its undo, as for single policies.
	w.person("ada", map[string]service.Role{"a": service.Owner})
	if w.as("ada").get(again).want(http.StatusOK).form("/policies/undo") != nil {
		t.Error("it is offered to another user")
	}

	b.post("/policies/undo", url.Values{"policy": {"one"}}).want(http.StatusUnprocessableEntity)
}

// A form that changes a policy at once offers a comment, and says what is wrong with it.
func TestCommentsAreOfferedByEveryForm(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	b := w.as("admin")
	long := strings.Repeat("x", service.MaxComment+1)

	for _, c := range []struct{ page, action string }{{"/policies/p", "/policies/p/mode"},
		{"/policies", "/policies/bulk"}} {
		if form := b.get(c.page).want(http.StatusOK).form(c.action); !form.Has("comment") {
			t.Errorf("the form of %s has %v", c.action, form)
		}
	}

	// An import, too, has a form with a comment.
	text, err := packed(bundle("fresh"))
	w.must(err)
	for action, form := range map[string]url.Values{
		"/policies/p/mode": {"version": {"1"}, "mode": {"shadow"}},
		"/policies/bulk":   {"policy": {"1:p"}, "do": {"off"}, "confirm": {"yes"}},
		"/import":          {"format": {"yaml"}, "packed": {text}, "base": {"1"}, "confirm": {"yes"}},
		"/keys/allow":      {"policy": {"p"}, "key": {"192.0.2.1"}, "version": {"1"}, "confirm": {"yes"}},
	} {
		form.Set("comment", long)
		if got := b.post(action, form).want(http.StatusUnprocessableEntity); !strings.Contains(
			got.text, "501 bytes are more than 500") {
			t.Errorf("%s says %s", action, got.text)
		}
	}

	if w.version("p") != 1 {
		t.Errorf("p has version %d", w.version("p"))
	}
}
