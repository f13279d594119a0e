package service

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// many returns so many names.
func many(name string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(name, i))
	}
	return list
}

func TestWebhookMistakesAreAllNamed(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "b"))
	good := hookFor("https://example.com/x", "a")

	// Each row spoils one field of a draft that is good.
	for _, row := range []struct {
		field  string
		change func(*WebhookDraft)
	}{
		{"name", func(d *WebhookDraft) { d.Name = " " }},
		{"name", func(d *WebhookDraft) { d.Name = "a\nb" }},
		{"name", func(d *WebhookDraft) { d.Name = strings.Repeat("x", MaxWebhookName+1) }},
		{"name", func(d *WebhookDraft) { d.Name = "\xff" }},
		{"url", func(d *WebhookDraft) { d.URL = "ftp://example.com" }},
		// Addresses of networks that the console does not send to, also in another writing.
		{"url", func(d *WebhookDraft) { d.URL = "http://10.0.0.1/" }},
		{"url", func(d *WebhookDraft) { d.URL = "http://[::ffff:127.0.0.1]/" }},

		// None, some beside all, one that does not exist, one that cannot be a name, and too many.
		{"apps", func(d *WebhookDraft) { d.Apps = nil }},
		{"apps", func(d *WebhookDraft) { d.All = true }},
		{"apps", func(d *WebhookDraft) { d.Apps = []string{"none"} }},
		{"apps", func(d *WebhookDraft) { d.Apps = []string{"<b>"} }},
		{"apps", func(d *WebhookDraft) { d.Apps = many("a", MaxWebhookApps+1) }},

		// Too often, backwards, too seldom, and no whole number of minutes.
		{"repeat_after", func(d *WebhookDraft) { d.RepeatAfter = time.Minute }},
		{"repeat_after", func(d *WebhookDraft) { d.RepeatAfter = -1 }},
		{"repeat_after", func(d *WebhookDraft) { d.RepeatAfter = MaxRepeat + 1 }},
		{"repeat_after", func(d *WebhookDraft) { d.RepeatAfter = time.Hour + 1 }},

		// None, one that does not exist, one twice, and one with numbers of another.
		{"conditions", func(d *WebhookDraft) { d.Conditions = nil }},
		{"conditions", func(d *WebhookDraft) { d.Conditions = []Condition{{Kind: "lost"}} }},
		{"conditions", func(d *WebhookDraft) { d.Conditions = []Condition{{Kind: AlertRedis}, {Kind: AlertRedis}} }},
		{"conditions", func(d *WebhookDraft) { d.Conditions = []Condition{{AlertRedis, 1, 0, 1, ""}} }},
		{"conditions", func(d *WebhookDraft) { d.Conditions = []Condition{{AlertRedis, 0, 1, 1, ""}} }},
		{"conditions", func(d *WebhookDraft) { d.Conditions = []Condition{{AlertPolicies, 0, 0, 1, "p"}} }},

		// A mistake in a condition names it and the number: the form marks that one.
		{"conditions.refused.over", func(d *WebhookDraft) { d.Conditions[0].Over = 100 }},
		{"conditions.refused.over", func(d *WebhookDraft) { d.Conditions[0].Over = -1 }},
		{"conditions.refused.count", func(d *WebhookDraft) { d.Conditions[0].Count = 0 }},
		{"conditions.refused.count", func(d *WebhookDraft) { d.Conditions[0].Count = maxRefused + 1 }},
		{"conditions.refused.minutes", func(d *WebhookDraft) { d.Conditions[0].Minutes = 0 }},
		{"conditions.refused.minutes", func(d *WebhookDraft) { d.Conditions[0].Minutes = MaxCounted + 1 }},
		{"conditions.refused.policy", func(d *WebhookDraft) { d.Conditions[0].Policy = "p" }},
		{"conditions.refused.policy", func(d *WebhookDraft) { d.Conditions[0].Policy = "a\x00" }},
		{"conditions.bypassed.minutes", func(d *WebhookDraft) {
			d.Conditions = []Condition{{AlertBypassed, 0, 0, MaxHeld + 1, ""}}
		}},
		{"conditions.policies.minutes", func(d *WebhookDraft) { d.Conditions = []Condition{{AlertPolicies, 0, 0, -1, ""}} }},
	} {
		draft := good
		draft.Conditions = slices.Clone(good.Conditions)
		row.change(&draft)
		draft.URL += "/x"

		_, _, err := w.CreateWebhook(t.Context(), w.admin, draft)
		wantFault(t, row.field, err, row.field)
	}

	// All mistakes at once, so that a person corrects them in one go.
	bad := WebhookDraft{Name: "", URL: "x", RepeatAfter: 1}
	_, _, err := w.CreateWebhook(t.Context(), w.admin, bad)
	for _, field := range []string{"name", "url", "apps", "repeat_after", "conditions"} {
		wantFault(t, "all at once", err, field)
	}

	for range MaxWebhooks {
		w.watch("https://example.com/x", "a")
	}
	_, _, err = w.CreateWebhook(t.Context(), w.admin, good)
	wantFault(t, "too many", err, "")
}

// Neither the secret nor the path of the URL is in the audit log, and every change is.
func TestWebhookChangesAreInTheAuditLog(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := newReceiver(t)

		// The applications are sorted, and each is there once.
		draft := hookFor(r.URL+"/p4th", "b", "a", "b")
		h, secret, err := w.CreateWebhook(ctx, w.admin, draft)
		w.must(err)
		if len(h.Apps) != 2 || h.Apps[0] != "a" || !strings.HasPrefix(secret, "whsec_") {
			t.Errorf("%+v %s", h, secret)
		}

		w.must(w.UpdateWebhook(ctx, w.admin, h.ID, h.WebhookDraft)) // nothing was changed

		draft.URL += "?x"
		w.must(w.UpdateWebhook(ctx, w.admin, h.ID, draft))

		second := must(w.RenewWebhookSecret(ctx, w.admin, h.ID))
		sent := must(w.TestWebhook(ctx, w.admin, h.ID))

		w.must(w.EnableWebhook(ctx, w.admin, h.ID, false))
		w.must(w.EnableWebhook(ctx, w.admin, h.ID, false)) // nothing was changed
		w.must(w.DeleteWebhook(ctx, w.admin, h.ID))

		// Signed with both secrets, right after the renewal.
		if sent.State != "done" || sent.Status != 200 || second == secret || len(strings.Fields(r.signed[0])) != 2 {
			t.Errorf("the test is %+v, signed %q", sent, r.signed)
		}
		wantTexts(t, "the test", r.take(), `test This is a test of the webhook "ops" of headgate.`)

		var got []string
		for _, e := range w.entries(AuditQuery{Object: "webhook:" + h.ID}) {
			got = append(got, e.Action)
			for _, hidden := range []string{secret, second, "p4th"} {
				if strings.Contains(e.Before+e.After+e.Note, hidden) {
					t.Errorf("%s: the audit log has %s", e.Action, hidden)
				}
			}
		}

		if want := "webhook.delete webhook.update webhook.test webhook.renew-secret webhook.update webhook.create"; strings.Join(got, " ") != want {
			t.Errorf("the audit log has %q, want %s", got, want)
		}
	})
}

// The secret before signs for a day, too.
func TestWebhookSecretsOverlapForADay(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	h := w.watch(r.URL, "a")

	// Before the renewal, right after it, twelve hours later, and when the day is over.
	for i, want := range []int{1, 2, 2, 1} {
		if i == 1 {
			must(w.RenewWebhookSecret(t.Context(), w.admin, h.ID))
		}

		must(w.TestWebhook(t.Context(), w.admin, h.ID))
		equal(t, fmt.Sprintf("signatures of message %d", i), len(strings.Fields(r.signed[i])), want)

		w.clock.pass(12*time.Hour - time.Microsecond)
		if i == 2 {
			w.clock.pass(2 * time.Microsecond)
		}
	}
}

// A test shows what went wrong, is not tried again, and is not kept of a webhook that is gone.
func TestWebhookTestShowsTheError(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	h := w.watch("http://127.0.0.1:1/s3cret", "a")

	sent := must(w.TestWebhook(t.Context(), w.admin, h.ID))
	if sent.State != store.StateFailed || !strings.Contains(sent.Error, "refused") ||
		strings.Contains(sent.Error, "s3cret") || sent.Attempts != 1 {
		t.Errorf("%+v", sent)
	}

	// A test that failed does not wait for another attempt.
	w.clock.pass(time.Hour)
	if due, err := w.Alarm().Due(t.Context()); err != nil || len(due) != 0 {
		t.Errorf("%v %v", due, err)
	}

	for _, id := range []string{"x", "0", "<b>", strings.Repeat("x", 1000), "' OR 1=1"} {
		wantErr(t, id, errOf(w.TestWebhook(t.Context(), w.admin, id)), ErrNotFound)
	}
}

// A console that ends while it sends a test leaves one that has failed, and no other sends it.
func TestWebhookTestOfAKilledConsoleFails(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx, kill := context.WithCancel(t.Context())
	sent, ended := 0, make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		sent++
		kill()
		<-ended
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(ended) })

	h := w.watch(hanging.URL, "a")
	wantErr(t, "a test while the console ends", errOf(w.TestWebhook(ctx, w.admin, h.ID)), context.Canceled)

	w.deliver()
	wantFault(t, "another one meanwhile", errOf(w.TestWebhook(t.Context(), w.admin, h.ID)), "")

	w.clock.pass(claimTime)
	w.deliver()
	got := must(w.Webhook(t.Context(), w.admin, h.ID))
	if d := got.Deliveries[0]; len(got.Deliveries) != 1 || d.State != store.StateFailed || d.Error == "" || sent != 1 {
		t.Errorf("%+v, sent %d times", got.Deliveries, sent)
	}
}

// A person who sends tests without end keeps one connection to the receiver open.
func TestWebhookIsTestedOnceAtATime(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()

	arrived, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-answer
	}))
	t.Cleanup(slow.Close)

	h, other := w.watch(slow.URL, "a"), w.watch("http://127.0.0.1:1", "a")
	first := make(chan error)
	go func() {
		_, err := w.TestWebhook(ctx, w.admin, h.ID)
		first <- err
	}()

	// While the receiver has not answered, no second test is sent to it.
	<-arrived
	for range 3 {
		wantFault(t, "a second test", errOf(w.TestWebhook(ctx, w.admin, h.ID)), "")
	}

	// Another webhook is tested all the same.
	must(w.TestWebhook(ctx, w.admin, other.ID))

	close(answer)
	w.must(<-first)

	go func() { <-arrived }()
	must(w.TestWebhook(ctx, w.admin, h.ID))

	// The first, that of the other one and the last: what was refused is no test.
	if n := len(w.entries(AuditQuery{Action: "webhook.test", Outcome: Done})); n != 3 {
		t.Errorf("%d tests are in the audit log, want 3", n)
	}
}

// Owners of some applications see the webhooks of those alone, and make none for all or for others.
func TestWebhooksAreOfOwners(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		owner := w.person("owner", map[string]Role{"a": Owner, "b": Owner, "c": Viewer})

		// Of these three the owner of a and b has to see the second alone.
		all, ab, c := w.watch("http://127.0.0.1:1"), w.watch("http://127.0.0.1:1", "a", "b"),
			w.watch("http://127.0.0.1:1", "a", "c")

		list := must(w.Webhooks(ctx, owner))
		if len(list) != 1 || list[0].ID != ab.ID {
			t.Errorf("the owner sees %+v", list)
		}

		for _, h := range []Webhook{all, c} {
			wantErr(t, "another's webhook", errOf(w.Webhook(ctx, owner, h.ID)), ErrNotFound)
		}

		for _, apps := range [][]string{nil, {"a", "c"}, {"none"}} {
			err := w.UpdateWebhook(ctx, owner, ab.ID, hookFor("http://127.0.0.1:1", apps...))
			wantErr(t, "an update for more", err, ErrDenied)
		}

		w.must(w.SetRole(ctx, w.admin, "owner", "b", Viewer))
		wantErr(t, "with a role less", errOf(w.Webhook(ctx, owner, ab.ID)), ErrNotFound)
	})
}

// An application cannot go while a webhook is for it: the next application of the name may be of
// others, and the webhook would tell its alerts to the receiver of the one before.
func TestDeleteAppRefusesAnAppOfAWebhook(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		h := w.watch("http://127.0.0.1:1", "a", "b")
		w.watch("http://127.0.0.1:1") // for all applications, whichever there are

		err := w.DeleteApp(ctx, w.admin, "a")
		wantFault(t, "an application of a webhook", err, "name")

		if want := `name: the webhooks that are for the application have to go first: "ops"`; err == nil ||
			err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}

		// An application without a webhook of its own goes, and a as soon as none is for it.
		w.must(w.DeleteApp(ctx, w.admin, "c"))
		w.must(w.UpdateWebhook(ctx, w.admin, h.ID, hookFor("http://127.0.0.1:1", "b")))
		w.must(w.DeleteApp(ctx, w.admin, "a"))
	})
}

// TestWebhookIsOfAnAppThatExists has applications be deleted while webhooks are added for them.
func TestWebhookIsOfAnAppThatExists(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		const pairs = 16
		ctx := t.Context()

		deleting, adding := make([]error, pairs), make([]error, pairs)
		var group sync.WaitGroup
		for i := range pairs {
			name := fmt.Sprint("app", i)
			w.must(w.CreateApp(ctx, w.admin, name, ""))
			group.Go(func() { deleting[i] = w.DeleteApp(ctx, w.admin, name) })
			group.Go(func() {
				_, _, adding[i] = w.another().CreateWebhook(ctx, w.admin, hookFor("https://example.com/x", name))
			})
		}

		// Of each pair exactly one has won. Both would leave a webhook of no application.
		group.Wait()
		for i := range pairs {
			if (deleting[i] == nil) == (adding[i] == nil) {
				t.Errorf("pair %d: the application is deleted: %v; the webhook is added: %v", i, deleting[i], adding[i])
			}
		}
	})
}
