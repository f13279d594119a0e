package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// hookValues is the form of a webhook for applications.
func hookValues(apps ...string) url.Values {
	return url.Values{"name": {"on call"}, "url": {"http://127.0.0.1:1/x"}, "apps": apps, "repeat": {"4h"},
		"kinds":        {"refused"},
		"refused_over": {"20"}, "refused_at_least": {"100"}, "refused_minutes": {"5"}, "refused_policy": {""}}
}

// watch adds a webhook of the application a.
func (w *world) watch(to string) service.Webhook {
	w.t.Helper()
	h, _, err := w.CreateWebhook(w.t.Context(), w.admin,
		service.WebhookDraft{Name: "ops", URL: to, Apps: []string{"a"}, Enabled: true,
			Conditions: []service.Condition{{Kind: service.AlertLost, Minutes: 1}}})
	w.must(err)
	return h
}

// heading returns the text of the h1.
func (a *answer) heading() (text string) {
	a.each(func(n *html.Node) {
		if n.Data == "h1" {
			text = words(n)
		}
	})
	return text
}

func TestWebhookFromTheFormToItsEnd(t *testing.T) {
	w := newWorld(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(receiver.Close)

	b := w.as("admin")
	if !b.get("/policies").links("/alerts") || !b.get("/alerts").links("/alerts/new") {
		t.Error("nothing leads to a new webhook")
	}

	// The conditions and the time of repetition are those that the form proposes.
	made := b.submit("/alerts/new", "/alerts",
		url.Values{"name": {"on call"}, "url": {receiver.URL + "/s3cret"}, "apps": {"b"}}).want(http.StatusOK)
	if !strings.HasPrefix(made.text[strings.Index(made.text, "whsec_"):], "whsec_") ||
		made.heading() != "Secret of the webhook on call" {
		t.Errorf("%s", made.text)
	}

	list, err := w.Webhooks(t.Context(), w.admin)
	w.must(err)
	h := list[0]
	if len(list) != 1 || h.Apps[0] != "b" || len(h.Conditions) != 3 || h.RepeatAfter != service.DefaultRepeat ||
		!h.Enabled {
		t.Errorf("the webhook is %+v", list)
	}

	page := "/alerts/" + h.ID
	w.showsWithoutPath(b, h, receiver)
	w.editsAndSwitches(b, h)

	// A receiver stops working when its secret changes, and a deletion cannot be undone, so both
	// are asked about.
	if got := b.submit(page, page+"/secret", nil).
		want(http.StatusOK); got.heading() != "Make a new secret for the webhook days?" {
		t.Errorf("%s", got.text)
	}
	if got := b.submit(page, page+"/delete", nil).want(http.StatusOK); got.heading() != "Delete the webhook days?" {
		t.Errorf("%s", got.text)
	}

	b.post(page+"/delete", url.Values{"confirm": {"yes"}}).goes("/alerts?done=hookdeleted")
	b.get(page).want(http.StatusNotFound)
}

// showsWithoutPath checks the list, and what the page of a webhook says of tests.
func (w *world) showsWithoutPath(b *browser, h service.Webhook, receiver *httptest.Server) {
	t, page := w.t, "/alerts/"+h.ID
	t.Helper()
	overview := b.get("/alerts").want(http.StatusOK)
	if !overview.links(page) || strings.Contains(overview.text, "s3cret") ||
		!strings.Contains(overview.text, receiver.URL) {
		t.Errorf("%s", overview.text)
	}
	b.submit(page, page+"/test", nil).goes(page + "?tested=yes")
	if got := words(b.get(page + "?tested=yes").byID("tested")); got !=
		"The test message arrived: the answer was 202." {
		t.Errorf("the page says %q", got)
	}
	receiver.Close()
	b.submit(page, page+"/test", nil).goes(page + "?tested=yes")
	if got := words(b.get(page + "?tested=yes").byID("tested")); !strings.HasPrefix(
		got, "The test message did not arrive.") || !strings.Contains(got, "refused") ||
		strings.Contains(got, "s3cret") {
		t.Errorf("the page says %q", got)
	}
}

// editsAndSwitches edits a webhook, and turns it off and on.
func (w *world) editsAndSwitches(b *browser, h service.Webhook) {
	t, page := w.t, "/alerts/"+h.ID
	t.Helper()
	b.submit(page+"/edit", page+"/edit", url.Values{"name": {"nights"}, "kinds": {"full"}, "full_over": {"75"},
		"repeat": {"0"}}).goes(page + "?done=hook")
	changed, err := w.Webhook(t.Context(), w.admin, h.ID)
	w.must(err)
	if want := []service.Condition{{Kind: service.AlertFull, Over: 75, Minutes: 1}}; !slices.Equal(
		changed.Conditions, want) || changed.Name != "nights" || changed.RepeatAfter != 0 || changed.URL != h.URL {
		t.Errorf("the webhook is %+v", changed)
	}
	if text := b.get(page).text; !strings.Contains(
		text, "The memory of Redis is nearly full: more than 75 % for 1 minute") ||
		!strings.Contains(text, "never while an alert stands") {
		t.Error(text)
	}
	b.submit(page, page+"/status", nil).goes(page + "?done=hookoff")
	b.submit(page+"/edit", page+"/edit", url.Values{"name": {"days"}}).goes(page + "?done=hook") // which leaves it off
	if off, err := w.Webhook(t.Context(), w.admin, h.ID); err != nil || off.Enabled {
		t.Errorf("%+v %v", off, err)
	}
	b.submit(page, page+"/status", nil).goes(page + "?done=hookon")
	b.post(page+"/status", url.Values{"do": {"x"}}).want(http.StatusBadRequest)
}

// Every mistake is beside its field and in the summary, and what was filled in is still there.
func TestWebhookFormShowsAllMistakes(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	form := url.Values{"name": {""}, "url": {"http://10.0.0.1/"}, "repeat": {"soon"},
		"kinds":        {"refused", "lost", "full"},
		"refused_over": {"many"}, "refused_at_least": {"0"}, "refused_minutes": {"99"},
		"refused_policy": {"No Policy"}, "lost_minutes": {"-1"}, "full_over": {"100"}, "full_minutes": {"1"}}
	got := b.post("/alerts", form).want(http.StatusUnprocessableEntity)
	for _, field := range []string{"name", "url", "apps", "repeat", "refused_over", "refused_at_least",
		"refused_minutes", "lost_minutes", "full_over"} {
		if got.mistake(field) == "" || !got.links("#"+field) || got.byID(field) == nil {
			t.Errorf("%s: the mistake is %q, in the summary: %v", field, got.mistake(field), got.links("#"+field))
		}
	}
	kept := got.form("/alerts")
	for _, field := range []string{"url", "repeat", "refused_over", "refused_policy", "lost_minutes"} {
		if kept.Get(field) != form.Get(field) {
			t.Errorf("%s became %q", field, kept.Get(field))
		}
	}
	if !slices.Equal(kept["kinds"], []string{"refused", "lost", "full"}) {
		t.Errorf("the conditions became %q", kept["kinds"])
	}
	if got := b.post("/alerts", url.Values{"name": {"x"}, "url": {"http://127.0.0.1:1"}, "apps": {"a"},
		"repeat": {"4h"}}).want(http.StatusUnprocessableEntity); got.mistake("kinds") == "" {
		t.Errorf("without a condition: %s", got.text)
	}
	w.person("owner", map[string]service.Role{"a": service.Owner})
	owner := w.as("owner")
	if f := owner.get("/alerts/new").form("/alerts"); f == nil ||
		strings.Contains(owner.get("/alerts/new").text, `name="all"`) {
		t.Error("an owner is offered all applications")
	}
	all := hookValues()
	all["all"] = []string{"yes"}
	owner.post("/alerts", all).want(http.StatusForbidden)
	b.post("/alerts", all).want(http.StatusOK)
}

// Names, URLs and the errors of receivers are shown as text.
func TestEscapeWebhooks(t *testing.T) {
	w := newWorld(t)
	b := w.as("admin")
	said := ""
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		w.Write([]byte(said))
	}))
	t.Cleanup(receiver.Close)
	h := w.watch(receiver.URL)
	page := "/alerts/" + h.ID
	for i, text := range injections() {
		draft := h.WebhookDraft
		draft.Name = "x" + text[:min(len(text), service.MaxWebhookName-1)]
		draft.URL = receiver.URL + "/?x=" + strings.NewReplacer("#", "", " ", "").Replace(text)
		if _, err := w.UpdateWebhook(t.Context(), w.admin, h.ID, draft); err != nil {
			draft.URL = receiver.URL
			_, err = w.UpdateWebhook(t.Context(), w.admin, h.ID, draft)
			w.must(err)
		}
		if said = text; i%10 == 0 {
			b.post(page+"/test", nil).goes(page + "?tested=yes")
		}
		for _, path := range []string{"/alerts", page + "?tested=yes", page + "/edit"} {
			got := b.get(path).want(http.StatusOK)
			got.harmless(path + " with " + text)
			if path == page+"?tested=yes" && got.heading() != strings.TrimSpace(draft.Name) {
				t.Errorf("the heading is %q, want %q", got.heading(), draft.Name)
			}
		}
		for _, form := range []url.Values{{"name": {text}, "url": {text}, "repeat": {text}, "apps": {text},
			"kinds": {text}}, {"kinds": {"refused"}, "refused_over": {text}, "refused_policy": {text}}} {
			b.post("/alerts", form).want(http.StatusUnprocessableEntity).harmless("the form with " + text)
		}
		b.get("/alerts/" + url.PathEscape(text)).want(http.StatusNotFound).harmless("the webhook " + text)
		if t.Failed() {
			return
		}
	}
}

func TestMessageBehindAnotherNamesNoAttempt(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	message := func(id, app string, next time.Time) service.Delivery {
		return service.Delivery{ID: id, Kind: "lost", App: app, NextAt: next}
	}

	// The newest are the first. The end of an alert waits until its beginning was sent.
	h := hook{Webhook: service.Webhook{Deliveries: []service.Delivery{
		message("end", "a", at), message("other", "b", at), message("beginning", "a", at.Add(time.Minute)),
		message("sent", "b", time.Time{}),
	}}}
	for _, m := range h.Messages() {
		if want := m.ID == "end"; m.Held != want {
			t.Errorf("%s: held %v, want %v", m.ID, m.Held, want)
		}
	}
	if list := h.Messages(); list[0].ID != "end" || len(list) != 4 {
		t.Errorf("the messages are %+v", list)
	}
}
