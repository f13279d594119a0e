package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// loopback sends to this machine alone.
func loopback(clock func() time.Time) *webhook.Sender {
	return webhook.New(webhook.Options{Networks: webhook.NewNetworks([]netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8")}), Clock: clock})
}

// hookFor returns a webhook for applications, or for all, that watches refused requests.
func hookFor(url string, apps ...string) WebhookDraft {
	return WebhookDraft{Name: "ops", URL: url, Apps: apps, All: len(apps) == 0, Enabled: true,
		RepeatAfter: 4 * time.Hour, Conditions: []Condition{{Kind: AlertRefused, Over: 20, Count: 100, Minutes: 5}}}
}

// watch adds a webhook as the administrator.
func (w *world) watch(url string, apps ...string) Webhook {
	w.t.Helper()
	h, _, err := w.CreateWebhook(w.t.Context(), w.admin, hookFor(url, apps...))
	w.must(err)
	return h
}

// watchFor adds a webhook with these conditions instead.
func (w *world) watchFor(url string, apps []string, list ...Condition) Webhook {
	w.t.Helper()
	draft := hookFor(url, apps...)
	draft.Conditions = list
	h, _, err := w.CreateWebhook(w.t.Context(), w.admin, draft)
	w.must(err)
	return h
}

// receiver keeps the messages that it gets, and answers each with the next status, or with 200.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	ids      []string
	sent     []message
	signed   []string
}

func newReceiver(t *testing.T, statuses ...int) *receiver {
	t.Helper()
	r := &receiver{statuses: statuses}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()

		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("the body %s: %v", body, err)
		}

		r.ids, r.sent = append(r.ids, q.Header.Get(webhook.HeaderID)), append(r.sent, m)
		r.signed = append(r.signed, q.Header.Get(webhook.HeaderSignature))

		if len(r.statuses) > 0 {
			w.WriteHeader(r.statuses[0])
			r.statuses = r.statuses[1:]
		}
	}))

	t.Cleanup(r.Close)
	return r
}

// take returns the types and texts of the messages, and forgets them.
func (r *receiver) take() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		list = append(list, strings.TrimPrefix(m.Type, "alert.")+" "+m.Text)
	}
	r.ids, r.sent, r.signed = nil, nil, nil
	return list
}

// refuse has an application refuse so many of 1000 requests in each of the last minutes.
func (w *world) refuse(app string, refused int64) {
	var list []stats.Minute
	start := w.clock.now().Truncate(time.Minute)
	for i := range stats.Minutes {
		list = append(list, minuteWith(start.Add(time.Duration(i-stats.Minutes+1)*time.Minute), 1000-refused, refused))
	}

	// The current minute is empty: only whole minutes count.
	list[stats.Minutes-1] = stats.Minute{Start: start}
	w.fleet.set(func(f *fakeFleet) { f.minutes = map[string][]stats.Minute{app: list} })
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// round checks, and sends what is due.
func (w *world) round() {
	w.t.Helper()
	w.must(w.Alarm().Check(w.t.Context()))
	w.deliver()
}

// deliver sends what is due.
func (w *world) deliver() {
	w.t.Helper()
	for {
		list := must(w.Alarm().Due(w.t.Context()))
		if len(list) == 0 {
			return
		}
		for _, d := range list {
			w.must(w.Alarm().Deliver(w.t.Context(), d.ID))
		}
	}
}

// rounds makes so many rounds, one every 15 seconds.
func (w *world) rounds(long time.Duration) {
	w.t.Helper()
	for range long / (15 * time.Second) {
		w.clock.pass(15 * time.Second)
		w.round()
	}
}

// wantTexts fails unless these are the messages, in any order.
func wantTexts(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the messages are\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestAlertBeginsStandsAndEnds(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		w.watch(r.URL, "a")

		// The condition holds above 20 %, not at it.
		w.refuse("a", 200)
		w.round()
		wantTexts(t, "at 20 %", r.take())

		// Four rounds see it, and one message is sent.
		w.refuse("a", 201)
		w.rounds(time.Minute)
		wantTexts(t, "above", r.take(),
			"begun a: 20.1 % of 5000 requests were refused in the last 5 minutes, more than 20 %.")

		w.rounds(30 * time.Minute)
		wantTexts(t, "while it stands", r.take())

		list := must(w.Webhooks(t.Context(), w.admin))
		if s := list[0].Standing; len(s) != 1 || s[0].Kind != AlertRefused || s[0].App != "a" ||
			!strings.HasPrefix(s[0].Text, "a: 20.1 %") || list[0].Deliveries[0].State != "done" {
			t.Errorf("the webhook is %+v", list[0])
		}

		// It is repeated four hours after the first message, which was sent at the first of the
		// rounds: 45 seconds before the end of that minute.
		w.clock.pass(4*time.Hour - 31*time.Minute)
		w.round()
		wantTexts(t, "before it is told again", r.take())

		w.clock.pass(time.Minute)
		w.round()
		wantTexts(t, "after four hours", r.take(),
			"stands For 4h0m45s: a: 20.1 % of 5000 requests were refused in the last 5 minutes, more than 20 %.")

		// At 20 % it has ended. The text of the end is that of the beginning, with what has passed
		// since.
		w.refuse("a", 200)
		w.rounds(time.Minute)
		wantTexts(t, "after its end", r.take(),
			"ended Over after 4h1m: a: 20.1 % of 5000 requests were refused in the last 5 minutes, more than 20 %.")
		w.rounds(time.Minute)
		wantTexts(t, "later", r.take())

		// Three messages in all: begun, repeated, ended.
		if h, err := w.Webhook(t.Context(), w.admin, list[0].ID); err != nil || len(h.Standing) != 0 ||
			len(h.Deliveries) != 3 {
			t.Errorf("%+v %v", h, err)
		}
	})
}

// instance returns an instance of the application a.
func instance(id, decides string) policy.Instance {
	return policy.Instance{ID: id, Process: id, App: "a", Version: label, Store: decides}
}

// A condition of instances has to hold at each check for its minutes.
// An alert leads to who is refused, by the policy that it names, or to Traffic. Messages lead there
// too, if the console knows its own address.
func TestAlertsLinkToTheirPages(t *testing.T) {
	for _, row := range []struct {
		kind     AlertKind
		app      string
		subjects []Subject
		want     string
	}{
		{AlertRefused, "a", nil, "/keys?app=a"},
		{AlertRefused, "a", []Subject{{Name: "p"}}, "/keys?app=a&policy=p"},
		{AlertRefused, "a", []Subject{{Name: "p"}, {Name: "q"}}, "/keys?app=a"},
		{AlertPolicies, "a", []Subject{{Name: "i"}}, "/?app=a"},
		{AlertRedis, "", nil, "/"},
	} {
		if got := (&finding{Subjects: row.subjects}).page(row.kind, row.app); got != row.want {
			t.Errorf("%s of %v: %s, want %s", row.kind, row.subjects, got, row.want)
		}
	}

	everyEngine(t, func(t *testing.T, w *world) {
		w.publicURL = "https://console.example"
		r := newReceiver(t)
		w.watch(r.URL, "a")
		w.refuse("a", 201)
		w.round()

		const link = "https://console.example/keys?app=a"
		if len(r.sent) != 1 || r.sent[0].Data.Link != link || !strings.HasSuffix(r.sent[0].Text, " 20 %. "+link) {
			t.Errorf("the messages are %+v", r.sent)
		}
		if list := must(w.Webhooks(t.Context(), w.admin)); list[0].Standing[0].Page != "/keys?app=a" {
			t.Errorf("the webhook is %+v", list[0])
		}
	})
}

func TestAlertHasToHold(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	w.watchFor(r.URL, []string{"a", "b"}, Condition{Kind: AlertPolicies, Minutes: 5}, Condition{Kind: AlertBypassed})

	// An instance that only has an older version is about to get the new one.
	one, two := instance("one", "store"), instance("two", "store")
	one.LeftOut, two.Version = []policy.LeftOut{{Policy: "p"}}, "v1"
	bad := []policy.Instance{one, two}
	w.fleet.set(func(f *fakeFleet) { f.instances = bad })

	// A single check without the bad instance starts the five minutes anew.
	w.rounds(5 * time.Minute)
	w.fleet.set(func(f *fakeFleet) { f.instances = bad[1:] })
	w.rounds(15 * time.Second)
	w.fleet.set(func(f *fakeFleet) { f.instances = bad })
	w.rounds(5 * time.Minute)
	wantTexts(t, "before five minutes", r.take())

	w.rounds(15 * time.Second)
	wantTexts(t, "after five minutes", r.take(), "begun a: 1 instance refuses policies: one.")

	// Another instance is bad in place of the first: the alert goes on, and only the one about
	// the store begins.
	three := instance("three", "local")
	three.Refused = label
	w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{two, three} })
	w.rounds(15 * time.Second)
	wantTexts(t, "with another", r.take(), "begun a: 1 instance decides without Redis: three.")

	// Each end names the instance that was seen last, not the one of the beginning.
	w.fleet.set(func(f *fakeFleet) { f.instances = bad[1:] })
	w.rounds(15 * time.Second)
	wantTexts(t, "at the end", r.take(),
		"ended Over after 30s: a: 1 instance refuses policies: three.",
		"ended Over after 15s: a: 1 instance decides without Redis: three.")
}

// Each way to decide without Redis counts.
func TestAlertOfEachWayToBypassRedis(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	w.watchFor(r.URL, []string{"a"}, Condition{Kind: AlertBypassed})
	var list []policy.Instance
	for _, store := range []string{"local", "open", "closed", "store", ""} {
		list = append(list, instance("in "+store, store))
	}
	w.fleet.set(func(f *fakeFleet) { f.instances = list })
	w.round()
	wantTexts(t, "in each mode", r.take(), "begun a: 3 instances decide without Redis: in closed, in local, in open.")
}

// While Redis does not answer, what is known of the instances stays as it is.
func TestAlertsStayWhileRedisIsAway(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	w.watchFor(r.URL, []string{"a"}, Condition{Kind: AlertRefused, Over: 20, Count: 1, Minutes: 1},
		Condition{Kind: AlertBypassed}, Condition{Kind: AlertRedis, Minutes: 1})

	// Two conditions hold at once: of counts and of instances.
	w.refuse("a", 500)
	w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{instance("one", "open")} })
	w.round()
	wantTexts(t, "at first", r.take(), "begun a: 1 instance decides without Redis: one.",
		"begun a: 50.0 % of 1000 requests were refused in the last minute, more than 20 %.")

	// None of them ends because nothing is known of it, however long that lasts. What is new is
	// that Redis is away, after its minute.
	w.fleet.set(func(f *fakeFleet) { f.err = errors.New("away") })
	w.rounds(time.Minute)
	wantTexts(t, "for a minute", r.take())

	w.rounds(time.Hour)
	wantTexts(t, "for longer", r.take(), "begun Redis does not answer the console. What the instances do is not known.")

	// Back again, it has no such instance: now that alert ends, and the one of counts goes on.
	w.fleet.set(func(f *fakeFleet) { f.err, f.instances = nil, nil })
	w.refuse("a", 500)
	w.rounds(15 * time.Second)
	wantTexts(t, "then", r.take(),
		"ended Over after 1h1m15s: a: 1 instance decides without Redis: one.",
		"ended Over after 1h: Redis does not answer the console. What the instances do is not known.")
}

// Counts that were made by hand meet the conditions, or miss them by one.
func TestConditionsOfCounts(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"p", "q"} {
			w.create(sample(name, "a"))
		}

		start := w.clock.now().Truncate(time.Minute)
		at := func(ago int, requests stats.Counts, policies map[string]stats.Counts) stats.Minute {
			return stats.Minute{Start: start.Add(-time.Duration(ago) * time.Minute), Requests: requests,
				Policies: policies}
		}

		// Requests: 7 refused of 40 in three minutes. The current minute does not count.
		w.fleet.set(func(f *fakeFleet) {
			f.minutes = map[string][]stats.Minute{"a": {
				at(4, stats.Counts{events.Refused: 1000}, nil),
				at(3, stats.Counts{events.Allowed: 10, events.FailedOpen: 2},
					map[string]stats.Counts{"p": {events.Allowed: 12}}),
				at(2, stats.Counts{events.Allowed: 8, events.Refused: 3, events.Banned: 2},
					map[string]stats.Counts{"p": {events.Allowed: 3, events.Refused: 3},
						"q": {events.Banned: 2, events.ShadowRefused: 9}}),
				at(1, stats.Counts{events.Allowed: 13, events.Impossible: 1, events.QueueFull: 1},
					map[string]stats.Counts{"p": {events.Impossible: 1, events.Overruled: 1}, "": {events.Banned: 5}}),
				at(0, stats.Counts{events.Refused: 1000, events.FailedOpen: 1000, events.Banned: 1000}, nil),
			}}
		})

		// Each text stands with the bound that it just passes, and the next rows raise one bound
		// by one.
		for _, row := range []struct {
			c    Condition
			want string // the beginning of the text, or "" for none
		}{
			{Condition{AlertRefused, 17, 7, 3, ""},
				"a: 17.5 % of 40 requests were refused in the last 3 minutes, more than 17 %"},
			{Condition{AlertRefused, 17, 8, 3, ""}, ""},
			{Condition{AlertRefused, 18, 7, 3, ""}, ""},
			// A number alone, without a share.
			{Condition{AlertRefused, 0, 7, 3, ""}, "a: 7 of 40 requests were refused in the last 3 minutes"},
			{Condition{AlertRefused, 0, 8, 3, ""}, ""},
			// The last whole minute alone: 2 of 15.
			{Condition{AlertRefused, 13, 2, 1, ""}, "a: 13.3 % of 15 requests were refused in the last minute"},
			{Condition{AlertRefused, 14, 2, 1, ""}, ""},
			// The minute before those has 1000 refusals more.
			{Condition{AlertRefused, 96, 1, 4, ""}, "a: 96.8 % of 1040 requests"},
			// By policy: p refused 4 of 20 and q 2 of 11. What shadow mode would have refused has
			// passed.
			{Condition{AlertRefused, 19, 4, 3, "p"},
				"a: 1 policy refused more than 19 % of their requests in the last 3 minutes: p (20.0 % of 20)"},
			{Condition{AlertRefused, 20, 4, 3, "p"}, ""},
			{Condition{AlertRefused, 0, 1, 3, AnyPolicy},
				"a: 2 policies refused 1 request or more in the last 3 minutes: p (20.0 % of 20), q (18.2 % of 11)"},
			{Condition{AlertRefused, 0, 3, 3, AnyPolicy},
				"a: 1 policy refused 3 requests or more in the last 3 minutes: p"},
			{Condition{AlertRefused, 18, 1, 3, AnyPolicy}, "a: 2 policies refused more than 18 %"},
			{Condition{AlertRefused, 19, 1, 3, AnyPolicy}, "a: 1 policy refused more than 19 %"},
		} {
			h := w.watchFor("http://127.0.0.1:1", []string{"a"}, row.c)
			w.clock.pass(15 * time.Second)
			w.must(w.Alarm().Check(t.Context()))

			got := must(w.Webhook(t.Context(), w.admin, h.ID))

			text := ""
			if len(got.Standing) > 0 {
				text = got.Standing[0].Text
			}
			if (text == "") != (row.want == "") || !strings.HasPrefix(text, row.want) {
				t.Errorf("%+v: %q, want %q", row.c, text, row.want)
			}

			// The next row begins without an alert that stands.
			w.must(w.DeleteWebhook(t.Context(), w.admin, h.ID))
		}
	})
}

// A receiver that fails gets the message again, with the same id, a bounded number of times.
func TestMessagesAreTriedAgain(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		r := newReceiver(t, 500, 200, 500, 500, 500, 500, 500, 500)
		h := w.watch(r.URL, "a")

		// The first attempt fails, and the second succeeds, exactly when it is due and with
		// the same id.
		w.refuse("a", 500)
		w.round()
		first := r.ids[0]

		w.clock.pass(10*time.Second - 1)
		w.deliver()
		equal(t, "messages before the pause has ended", len(r.ids), 1)

		w.clock.pass(1)
		w.deliver()
		if len(r.ids) != 2 || r.ids[1] != first {
			t.Errorf("the ids are %q", r.ids)
		}

		// The end of the alert meets failures alone. The pauses add up to 10, 40, 160, 760 and
		// 2560 seconds, and nothing is sent a nanosecond earlier.
		r.take()
		w.refuse("a", 0)
		w.round()

		began, tries := w.clock.now(), 1
		try := func(after time.Duration) {
			w.clock.pass(began.Add(after).Sub(w.clock.now()))
			if w.deliver(); len(r.ids) != tries {
				t.Errorf("tried %d times until %s, want %d", len(r.ids), after, tries)
			}
		}

		for _, after := range []time.Duration{10 * time.Second, 40 * time.Second, 160 * time.Second, 760 * time.Second,
			2560 * time.Second} {
			try(after - 1)
			tries++
			try(after)
		}

		// After the sixth attempt it is given up.
		try(2 * time.Hour)

		got := must(w.Webhook(t.Context(), w.admin, h.ID))
		for i, want := range []string{"alert.ended failed 6 500 true", "alert.begun done 2 200 false"} {
			d := got.Deliveries[i]
			if is := fmt.Sprint(d.Event, " ", d.State, " ", d.Attempts, " ", d.Status, " ",
				strings.Contains(d.Error, "500")); is != want {
				t.Errorf("message %d is %s, want %s: %+v", i, is, want, d)
			}
		}
	})
}

// The end of an alert is told after its beginning, also while that has to be tried again.
func TestMessagesOfAnAlertAreInOrder(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t, 500, 500)
	w.watch(r.URL, "a")
	w.refuse("a", 500)
	w.round()

	// The beginning fails twice, and the alert ends before it is due again.
	w.clock.pass(10 * time.Second)
	w.deliver()

	w.refuse("a", 0)
	w.clock.pass(15 * time.Second)
	w.round() // the beginning is tried again 30 seconds after the second attempt

	if got := r.take(); len(got) != 2 || !strings.HasPrefix(got[0], "begun") || !strings.HasPrefix(got[1], "begun") {
		t.Errorf("before: %q", got)
	}

	// The third attempt succeeds, and only then the end follows.
	w.clock.pass(15 * time.Second)
	w.deliver()
	if got := r.take(); len(got) != 2 || !strings.HasPrefix(got[0], "begun") || !strings.HasPrefix(got[1], "ended") {
		t.Errorf("then: %q", got)
	}
}

// A console that is killed after it has claimed a message has another one send it.
func TestMessageOfAKilledConsoleIsSent(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		w.watch(r.URL, "a")
		w.refuse("a", 500)
		w.must(w.Alarm().Check(t.Context()))

		due := must(w.Alarm().Due(t.Context()))
		if len(due) != 1 {
			t.Fatalf("%d messages", len(due))
		}

		other := w.another().Alarm()
		_, _, err := other.claimDelivery(t.Context(), due[0].ID) // and it is killed
		w.must(err)

		w.deliver()
		w.must(w.Alarm().Deliver(t.Context(), due[0].ID))
		wantTexts(t, "while the other may send", r.take())

		// The claim has ended. Two deliveries still send it once.
		w.clock.pass(claimTime)
		w.deliver()
		w.deliver()
		if got := r.take(); len(got) != 1 {
			t.Errorf("%q", got)
		}

		// One that is killed between the sending and the note of it: at least once, with one id.
		w.refuse("a", 0)
		w.clock.pass(15 * time.Second)
		w.must(w.Alarm().Check(t.Context()))

		due = must(w.Alarm().Due(t.Context()))

		hook, d, err := other.claimDelivery(t.Context(), due[0].ID)
		w.must(err)
		other.s.post(t.Context(), hook, &d)

		w.clock.pass(claimTime)
		w.deliver()
		if len(r.ids) != 2 || r.ids[0] != r.ids[1] {
			t.Errorf("the ids are %q", r.ids)
		}
	})
}

// A console that is killed in each attempt does not try for ever.
func TestMessageOfConsolesThatAreKilledFails(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	h := w.watch(r.URL, "a")
	w.refuse("a", 500)
	w.must(w.Alarm().Check(t.Context()))

	// Each claim counts as an attempt, or the message would be tried for ever.
	for range MaxAttempts {
		due := must(w.Alarm().Due(t.Context()))
		_, _, err := w.Alarm().claimDelivery(t.Context(), due[0].ID)
		w.must(err)
		w.clock.pass(claimTime)
	}

	w.deliver()
	got := must(w.Webhook(t.Context(), w.admin, h.ID))
	if d := got.Deliveries[0]; d.State != "failed" || d.Error == "" || len(r.ids) != 0 {
		t.Errorf("%+v, %d sent", d, len(r.ids))
	}
}

// Two consoles on a database check and send at the same time, and each alert is told once.
func TestAlertsOfTwoConsolesAreToldOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		r := newReceiver(t)
		for range 3 {
			w.watch(r.URL, "a")
		}
		consoles := []*Service{w.Service, w.another(), w.another()}

		// Even steps begin the alert, and odd ones end it.
		for step := range 6 {
			w.refuse("a", int64(500*((step+1)%2)))
			w.clock.pass(15 * time.Second)

			// The messages are sent after all have checked, so that every console finds all of
			// them due.
			var all sync.WaitGroup
			for _, s := range consoles {
				all.Go(func() {
					if err := s.Alarm().Check(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, s := range consoles {
				all.Go(func() {
					for {
						due, err := s.Alarm().Due(t.Context())
						if err != nil || len(due) == 0 {
							return
						}
						for _, d := range due {
							if err := s.Alarm().Deliver(t.Context(), d.ID); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			all.Wait()

			// One message for each of the three webhooks.
			ids := map[string]bool{}
			for _, id := range r.ids {
				ids[id] = true
			}

			if got := r.take(); len(got) != 3 || len(ids) != 3 ||
				!strings.HasPrefix(got[0], []string{"begun", "ended"}[step%2]) {
				t.Errorf("step %d: %q", step, got)
			}
		}
	})
}

// What a console has seen before another one began a later check is not written.
func TestAlertsOfALateCheckAreDropped(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	h := w.watch("http://127.0.0.1:1", "a")
	w.refuse("a", 500)

	// A check takes its turn and looks, and is slow to write.
	turn := must(w.Alarm().claim(t.Context()))
	var watch alertWatch
	w.must(w.db.View(t.Context(), func(tx *store.Tx) (err error) { watch, err = alertWatchOf(tx); return err }))
	late := w.askRedis(t.Context(), watch)

	w.refuse("a", 0)
	if again, err := w.Alarm().claim(t.Context()); err != nil || again != 0 {
		t.Errorf("a second check at once is number %d, %v", again, err)
	}

	// Another console checks in between and sees that all is well. The late one writes nothing.
	w.clock.pass(15 * time.Second)
	w.must(w.another().Alarm().Check(t.Context()))

	w.must(w.db.Update(t.Context(), func(tx *store.Tx) error { return w.writeCheck(tx, late, turn) }))
	if got, err := w.Webhook(t.Context(), w.admin, h.ID); err != nil || len(got.Standing) != 0 {
		t.Errorf("%+v %v", got.Standing, err)
	}

	w.clock.pass(-time.Hour) // a clock that is behind checks all the same
	if again, err := w.Alarm().claim(t.Context()); err != nil || again == 0 {
		t.Errorf("behind: number %d, %v", again, err)
	}
}

// A webhook that is turned off is quiet, and one that watches no more tells so.
func TestWebhookTurnedOffIsQuiet(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	h := w.watch(r.URL, "a")
	w.refuse("a", 500)
	w.must(w.Alarm().Check(t.Context()))

	// The message that waits is not sent later: it would report what may be over.
	w.must(w.EnableWebhook(t.Context(), w.admin, h.ID, false))
	w.rounds(time.Minute)
	wantTexts(t, "off", r.take())

	got := must(w.Webhook(t.Context(), w.admin, h.ID))
	if d := got.Deliveries[0]; d.State != "failed" || !strings.Contains(d.Error, "turned off") ||
		len(got.Standing) != 0 {
		t.Errorf("%+v", got)
	}

	// Turned on again, it reports what stands.
	w.must(w.EnableWebhook(t.Context(), w.admin, h.ID, true))
	w.rounds(15 * time.Second)
	if list := r.take(); len(list) != 1 {
		t.Errorf("on again: %q", list)
	}

	// The alert about a ends, as the receiver would wait for its end otherwise.
	draft := hookFor(r.URL, "b")
	w.must(w.UpdateWebhook(t.Context(), w.admin, h.ID, draft))
	w.rounds(15 * time.Second)
	if list := r.take(); len(list) != 1 || !strings.HasSuffix(list[0], "It is not watched any more.") {
		t.Errorf("not watched: %q", list)
	}

	w.must(w.DeleteWebhook(t.Context(), w.admin, h.ID))
	w.rounds(time.Minute)
	wantTexts(t, "deleted", r.take())
}

// A webhook whose receiver is away keeps a bounded number of messages.
func TestMessagesAreBounded(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	h := w.watch("http://127.0.0.1:1", "a")

	// Each check begins or ends an alert. Nothing delivers, so the messages pile up.
	for i := range 2 * maxWaiting {
		w.refuse("a", int64(500*((i+1)%2)))
		w.clock.pass(15 * time.Second)
		w.must(w.Alarm().Check(t.Context()))
	}

	var waiting int64
	w.must(w.db.View(t.Context(), func(tx *store.Tx) (err error) { waiting, err = tx.CountWaiting(h.ID); return err }))
	equal(t, "messages wait", waiting, maxWaiting)

	// Of those that have ended, the newest are kept. Five more than the bound are made.
	for range KeptDeliveries + 5 {
		must(w.TestWebhook(t.Context(), w.admin, h.ID))
		w.clock.pass(time.Microsecond)
	}

	var ended int
	w.must(w.db.View(t.Context(), func(tx *store.Tx) error {
		rows, err := tx.DeliveriesOf(h.ID, 1000)
		ended = len(rows) - maxWaiting
		return err
	}))

	equal(t, "messages are kept", ended, KeptDeliveries)
}

// Names that a receiver may take for markup or for people are only in the data.
func TestMessagesOfHostileNames(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	r := newReceiver(t)
	w.watchFor(r.URL, []string{"a"}, Condition{Kind: AlertPolicies})

	for _, name := range append(scripts(), append(injections(), "<!channel> @here [x](http://evil.example)", "a\x00\nb",
		strings.Repeat("é", 5000))...) {
		bad := instance(name, "store")
		bad.Refused = "v3"
		w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{bad} })
		w.rounds(15 * time.Second)
		if len(r.sent) != 1 {
			t.Fatalf("%d messages about %q", len(r.sent), name)
		}

		// The text has no character that a chat would format or take for a mention or a link.
		m := r.sent[0]
		if _, said, _ := strings.Cut(m.Text, "policies: "); said == "" || len(m.Text) > 300 ||
			strings.ContainsAny(said, "<>&@#*`[](){}!|\"'\\/\n\x00:") {
			t.Errorf("the text is %q", m.Text)
		}

		// The data has the name as it is, but for its length and what is not text.
		if want := sanitize(name, policy.MaxText); len(m.Data.Subjects) != 1 || m.Data.Subjects[0].Name != want {
			t.Errorf("the subjects are %q, want %q", m.Data.Subjects, want)
		}

		// The alert ends, so that the next name begins one.
		r.take()
		w.fleet.set(func(f *fakeFleet) { f.instances = nil })
		w.rounds(15 * time.Second)
		r.take()
	}
}

// TestAlertsAreQuick checks 10,000 policies in ten applications and 200 instances for 30 webhooks.
func TestAlertsAreQuick(t *testing.T) {
	test.Long(t, "it measures")
	everyEngineOnDisk(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		start := w.clock.now().Truncate(time.Minute)
		w.fleet.minutes = map[string][]stats.Minute{}
		apps := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}

		for n, app := range apps {
			if n > 2 {
				w.must(w.CreateApp(ctx, w.admin, app, ""))
			}

			// 1000 policies in each minute of each application.
			for m := range stats.Minutes {
				one := stats.Minute{Start: start.Add(time.Duration(m-stats.Minutes+1) * time.Minute),
					Requests: stats.Counts{1000, 5: 500}, Policies: map[string]stats.Counts{}}
				for p := range 1000 {
					one.Policies[fmt.Sprintf("p%d%03d", n, p)] = stats.Counts{events.Allowed: 100,
						events.Refused: int64(p % 50), events.Banned: 1}
				}
				w.fleet.minutes[app] = append(w.fleet.minutes[app], one)
			}

			for i := range 20 {
				w.fleet.instances = append(w.fleet.instances,
					policy.Instance{ID: fmt.Sprint(app, i), Process: fmt.Sprint(app, i), App: app, Version: "v1",
						Store: "local"})
			}
		}

		// Every kind of condition, and the costliest form of it: by each policy.
		var all []Condition
		for _, k := range AlertKinds() {
			c := k.Default
			if c.Kind == AlertRefused {
				c.Policy = AnyPolicy
			}
			all = append(all, c)
		}

		// The first ten webhooks watch all applications, and the others one each.
		for i := range 30 {
			var only []string
			if i >= 10 {
				only = apps[i%10 : i%10+1]
			}
			w.watchFor("http://127.0.0.1:1", only, all...)
		}

		// The first check writes a message for each alert. It is not judged, as it happens once.
		w.clock.pass(15 * time.Second)
		began := time.Now()
		w.must(w.Alarm().Check(ctx))
		t.Logf("the first check, with all messages, took %s", time.Since(began).Round(time.Millisecond))

		took := median(t, func() error {
			w.clock.pass(15 * time.Second)
			return w.Alarm().Check(ctx)
		})
		test.AtMost(t, "a check", took, quick)
	})
}

// The message in the documentation is one that the console sends.
func TestMessageIsDocumented(t *testing.T) {
	page := must(os.ReadFile("../../../../docs/alerts.md"))

	_, block, _ := strings.Cut(string(page), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var want bytes.Buffer
	if err := json.Compact(&want, []byte(block)); err != nil {
		t.Error(err)
	}

	// Read and written again, it has all fields in the order of the console's messages.
	var m message
	if err := json.Unmarshal(want.Bytes(), &m); err != nil {
		t.Error(err)
	}
	if got := text(m); got != want.String() {
		t.Errorf("the documentation has\n%s\nand the console sends\n%s", &want, got)
	}

	for _, k := range alertKinds {
		if !strings.Contains(string(page), "\n| `"+string(k.Default.Kind)+"` |") {
			t.Errorf("the documentation has no condition %s", k.Default.Kind)
		}
	}
}

// quick is the longest time of what a page or a check asks for.
const quick = 100 * time.Millisecond

// median returns the median of five runs.
func median(t *testing.T, f func() error) time.Duration {
	t.Helper()
	var list []time.Duration
	for range 5 {
		began := time.Now()
		if err := f(); err != nil {
			t.Error(err)
		}
		list = append(list, time.Since(began))
	}
	slices.Sort(list)
	return list[2]
}
