package web

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	w.person("ada", nil)

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
	got.has("the last administrator")
}

func TestConfirmationOfAnEditKeepsTheWholeForm(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

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

func TestUndoTakesBackWhatTheNoticeSays(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")

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
	b.get("/policies/p/diff?from=1&to=3").
		want(http.StatusOK).has("Nothing differs.")

	b.get("/policies/p/diff?from=x&to=-1").want(http.StatusUnprocessableEntity).legible("a comparison with mistakes")
	b.get("/policies/p/diff?from=1&to=99").want(http.StatusNotFound)
	b.post("/policies/p/rollback", url.Values{"to": {"99"}, "version": {"3"}}).want(http.StatusNotFound)
}

// redisError is what Redis answers instead of a result.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// failed is when publishing begins to fail in these tests.
var failed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bannerWorld has a publisher with a status that tests set, five seconds after failed.
func bannerWorld(t *testing.T) (*world, *publish.Status) {
	status := &publish.Status{At: time.Now()}
	return newWorld(t, func(o *Options) {
		o.Publishing = func() publish.Status { return *status }
		o.Clock = func() time.Time { return failed.Add(5 * time.Second) }
	}), status
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

	// No page has the words of a program: neither a deadline, nor an address, which would tell how
	// the network is built.
	status.Failures, status.Since = 3, failed
	const away = "Redis has not answered since 2026-03-01 12:00:00 (5 s). " +
		"Counts are of 2026-03-01 12:00:00; changes are saved and come into force when it is back."
	for _, err := range []error{
		&net.OpError{Op: "dial", Err: errors.New("redis.internal refused")}, context.DeadlineExceeded,
		fmt.Errorf("version 7: %w", io.EOF), redisError("LOADING Redis is loading the dataset in memory"),
	} {
		status.Err = err
		for _, b := range []*browser{b, owner} {
			if got := shown(b, "/policies/p?done=mode"); got != away {
				t.Errorf("%v: the banner says %q", err, got)
			}
		}
	}
	got := owner.get("/banner").want(http.StatusOK)
	if len(got.byClass("look")) != 1 || len(got.byClass("wrong")) != 0 {
		t.Errorf("it is no amber bar: %s", got.text)
	}

	// What Redis refuses waits for a person.
	const refused = "The policies cannot be published, since 2026-03-01 12:00:00. The newest changes are saved " +
		"and not in force yet: they will be as soon as they can be published. "
	for err, want := range map[error]string{
		fmt.Errorf("version 7: %w", errors.New("<b>it is refused</b>")): "The log of the console has the reason.",
		fmt.Errorf("version 7: %w", redisError("OOM command not allowed")): "Redis has no memory left. " +
			"Give it more, or have it forget more.",
	} {
		status.Err = err
		if got := shown(b, "/policies"); got != refused+want {
			t.Errorf("%v: the banner says %q", err, got)
		}
	}
	publish()
	const on = "The instances go on with the policies that they have."
	if got := shown(owner, "/policies"); !strings.Contains(got, on) {
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
	service.Fleet
	calls int
}

func (f *countingFleet) Version(ctx context.Context) (string, error) {
	f.calls++
	return f.Fleet.Version(ctx)
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

func TestPauseOfAPolicy(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	w.person("viewer", map[string]service.Role{"a": service.Viewer})

	// To turn off protects less, so it is asked about first. One hour is singular, and two are not.
	form := url.Values{"version": {"1"}, "mode": {"off"}, "for": {"1"}}
	b.post("/policies/p/mode", form).want(http.StatusOK).has("From now, for 1 hour, the instances of a do not apply it")
	form.Set("for", "2")
	question := b.post("/policies/p/mode", form).want(http.StatusOK)
	question.has("From now, for 2 hours, the instances of a do not apply it")
	b.post("/policies/p/mode", question.form("/policies/p/mode")).goes("/policies/p?done=until")

	// The pause counts from the change, and not from the question.
	p, err := w.Policy(t.Context(), w.admin, "p")
	pause, err2 := w.PauseOf(t.Context(), w.admin, "p")
	if errors.Join(err, err2) != nil || p.Mode != policy.Off || !pause.Until.Equal(p.UpdatedAt.Add(2*time.Hour)) {
		t.Errorf("%+v %+v %v %v", p, pause, err, err2)
	}

	// Its page says when it goes back, and to what. Who may edit it may let it stay as it is.
	for user, may := range map[string]bool{"admin": true, "viewer": false} {
		got := w.as(user).get("/policies/p").want(http.StatusOK)
		got.legible("the page of a policy with a pause")
		text := got.byID("paused")
		if text == nil || !strings.Contains(words(text), "It is off until") ||
			!strings.Contains(words(text), "Then it is in force again by itself, as admin has planned.") ||
			(got.form("/policies/p/pause") != nil) != may || got.byID("for") != nil {
			t.Errorf("%s sees %s", user, got.text)
		}
	}

	// The change can be undone, which ends the pause.
	b.submit("/policies/p?done=until", "/policies/p/undo", nil).goes("/policies/p?done=undone")
	if got := b.get("/policies/p").want(http.StatusOK); got.byID("paused") != nil || got.byID("for") == nil {
		t.Errorf("%s", got.text)
	}

	// Shadow needs no question, as the policy goes back by itself.
	b.submit("/policies/p", "/policies/p/mode", url.Values{"mode": {"shadow"}, "for": {"720"}}).
		goes("/policies/p?done=until")
	b.submit("/policies/p", "/policies/p/pause", nil).goes("/policies/p?done=stays")
	b.post("/policies/p/pause", nil).want(http.StatusUnprocessableEntity)
	if w.version("p") != 4 {
		t.Errorf("it has version %d", w.version("p"))
	}
}

func TestPauseThatDidNotEndIsShown(t *testing.T) {
	w := newWorld(t)
	w.policy("p", "5/1m")
	owner := w.person("owner", map[string]service.Role{"a": service.Owner})
	_, err := w.PausePolicy(t.Context(), owner, "p", 1, policy.Shadow, time.Hour)
	w.must(err)
	w.must(w.DisableUser(t.Context(), w.admin, "owner"))
	w.pass(2 * time.Hour)
	w.must(w.Calendar().Run(t.Context()))

	b := w.as("admin")
	got := b.get("/policies/p").want(http.StatusOK)
	got.legible("the page of a policy that did not go back")
	text := strings.Join(got.byClass("paused"), "")
	if !strings.HasPrefix(text, "It was to be in force again ") || got.byID("for") == nil ||
		!strings.Contains(text, ", as owner had planned, and is not: the user owner is disabled.") {
		t.Errorf("%s", got.text)
	}
	b.post("/policies/p/pause", nil).goes("/policies/p?done=stays")
	b.get("/policies/p").lacks("It was to be")
}

func TestPauseMistakesAreBesideTheFields(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	for _, c := range []struct{ mode, hours, comment, field, says string }{
		{"", "1", "", "mode", "choose one"},
		{"x", "", "", "mode", "choose one"},
		{"enforce", "1", "", "for", "only a policy in shadow or off goes back by itself"},
		{"shadow", "0", "", "for", "from 1 to 720"},
		{"shadow", "721", "", "for", "from 1 to 720"},
		{"shadow", "1.5", "", "for", "from 1 to 720"},
		{"shadow", "99999999999999999999", "", "for", "from 1 to 720"},
		{"shadow", "1", "\x00", "comment", "control character"},
	} {
		form := url.Values{"version": {"1"}, "mode": {c.mode}, "for": {c.hours}, "comment": {c.comment}}
		got := b.post("/policies/p/mode", form).want(http.StatusUnprocessableEntity)
		got.legible(form.Encode())
		if !strings.Contains(got.mistake(c.field), c.says) {
			t.Errorf("%+v: beside %s is %q", c, c.field, got.mistake(c.field))
		}
	}
	if w.version("p") != 1 {
		t.Errorf("it has version %d", w.version("p"))
	}
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

	// The undo is of the instant. Only who made the change is offered it, as for single policies.
	got := b.get(done).want(http.StatusOK)
	undo := got.form("/policies/undo")
	if undo.Get("at") == "" || !strings.Contains(got.text, "the change of 2 policies") {
		t.Fatalf("%s offers to undo %v", done, undo)
	}
	w.person("ada", map[string]service.Role{"a": service.Owner})
	if w.as("ada").get(done).want(http.StatusOK).form("/policies/undo") != nil {
		t.Error("it is offered to another user")
	}
	w.as("ada").post("/policies/undo", undo).want(http.StatusNotFound)

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

	// The last change of all is taken back in one step.
	done = b.post("/policies/bulk", url.Values{"policy": {"2:one", "3:two"}, "do": {"enforce"}}).
		want(http.StatusSeeOther).header.Get("Location")
	b.submit(done, "/policies/undo", nil).goes("/policies?done=undone")
	if w.version("one") != 4 || w.version("two") != 5 {
		t.Errorf("the versions are %d and %d", w.version("one"), w.version("two"))
	}
	for _, at := range []string{"", "x", "1"} {
		want := http.StatusBadRequest
		if at == "1" {
			want = http.StatusNotFound
		}
		b.post("/policies/undo", url.Values{"at": {at}}).want(want)
	}
}

// A form that changes a policy at once offers a comment, and says what is wrong with it.
func TestCommentTooLongIsAMistake(t *testing.T) {
	w, b := asAdmin(t)
	w.policy("p", "5/1m")
	long := strings.Repeat("x", service.MaxComment+1)

	for action, page := range map[string]string{"/policies/p/edit": "/policies/p/edit",
		"/policies/p/delete": "/policies/p/delete", "/policies/p/mode": "/policies/p", "/policies/bulk": "/policies"} {
		if form := b.get(page).want(http.StatusOK).form(action); !form.Has("comment") {
			t.Errorf("the form of %s has %v", action, form)
		}
	}

	// An import, too, has a form with a comment.
	text, err := packed(bundle("fresh"))
	w.must(err)
	for action, form := range map[string]url.Values{
		"/policies/p/edit":   with(b.get("/policies/p/edit").form("/policies/p/edit"), "quota", "6"),
		"/policies/p/delete": {"version": {"1"}, "confirm": {"yes"}},
		"/policies/p/mode":   {"version": {"1"}, "mode": {"shadow"}},
		"/policies/bulk":     {"policy": {"1:p"}, "do": {"off"}, "confirm": {"yes"}},
		"/import":            {"format": {"yaml"}, "packed": {text}, "base": {"1"}, "confirm": {"yes"}},
		"/keys/allow":        {"policy": {"p"}, "key": {"192.0.2.1"}, "version": {"1"}, "confirm": {"yes"}},
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
