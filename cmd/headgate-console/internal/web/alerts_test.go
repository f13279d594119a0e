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

// hookForm is the form of a webhook for applications.
func hookForm(apps ...string) url.Values {
	return url.Values{"name": {"on call"}, "url": {"http://127.0.0.1:1/x"}, "apps": apps, "repeat_after": {"4h"},
		"conditions":              {"refused"},
		"conditions.refused.over": {"20"}, "conditions.refused.count": {"100"}, "conditions.refused.minutes": {"5"}}
}

// watch adds a webhook of the application a.
func (w *world) watch(to string) service.Webhook {
	w.t.Helper()
	h, _, err := w.CreateWebhook(w.t.Context(), w.admin,
		service.WebhookDraft{Name: "ops", URL: to, Apps: []string{"a"}, Enabled: true,
			Conditions: []service.Condition{{Kind: service.AlertRedis, Minutes: 1}}})
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
	if !b.get("/policies").links("/alerts") || !b.get("/alerts").links("/alerts?webhook=new") {
		t.Error("nothing leads to a new webhook")
	}

	// The conditions and the time of repetition are those that the form proposes.
	made := b.submit("/alerts?webhook=new", "/alerts",
		url.Values{"name": {"on call"}, "url": {receiver.URL + "/s3cret"}, "apps": {"b"}}).want(http.StatusOK)
	secret := made.secret()
	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("%s", made.text)
	}

	list, err := w.Webhooks(t.Context(), w.admin)
	w.must(err)
	h := list[0]
	if len(list) != 1 || h.Apps[0] != "b" || len(h.Conditions) != 3 || h.RepeatAfter != service.DefaultRepeat ||
		!h.Enabled {
		t.Errorf("the webhook is %+v", list)
	}

	page := "/alerts?webhook=" + h.ID
	w.showsWithoutPath(b, h, receiver)
	w.editsAndSwitches(b, h)

	// A new secret is shown once, and is another one.
	again := b.submit(page, "/alerts/"+h.ID+"/secret", nil).want(http.StatusOK).secret()
	if !strings.HasPrefix(again, "whsec_") || again == secret || b.get(page).secret() != "" {
		t.Errorf("the secrets are %s and %s", secret, again)
	}

	b.submit(page, "/alerts/"+h.ID+"/delete", nil).goes("/alerts?done=hookdeleted")
	b.get(page).want(http.StatusNotFound)
}

// secret returns the secret that a page shows, or "".
func (a *answer) secret() (text string) {
	a.each(func(n *html.Node) {
		if attr(n, "class") == "secret" {
			text = words(n)
		}
	})
	return text
}

// showsWithoutPath checks the list, and what the page says of tests.
func (w *world) showsWithoutPath(b *browser, h service.Webhook, receiver *httptest.Server) {
	t, page, test := w.t, "/alerts?webhook="+h.ID, "/alerts/"+h.ID+"/test"
	t.Helper()
	overview := b.get("/alerts").want(http.StatusOK)
	if !overview.links(page+"#open") || strings.Contains(overview.text, "s3cret") ||
		!strings.Contains(overview.text, receiver.URL) {
		t.Errorf("%s", overview.text)
	}
	b.submit(page, test, nil).goes(page + "&tested=yes")
	if got := words(b.get(page + "&tested=yes").byID("tested")); got !=
		"The test message arrived: the answer was 202." {
		t.Errorf("the page says %q", got)
	}
	receiver.Close()
	b.submit(page, test, nil).goes(page + "&tested=yes")
	if got := words(b.get(page + "&tested=yes").byID("tested")); !strings.HasPrefix(
		got, "The test message did not arrive.") || !strings.Contains(got, "refused") ||
		strings.Contains(got, "s3cret") {
		t.Errorf("the page says %q", got)
	}
}

// editsAndSwitches edits a webhook, and turns it off and on.
func (w *world) editsAndSwitches(b *browser, h service.Webhook) {
	t, page, action := w.t, "/alerts?webhook="+h.ID, "/alerts/"+h.ID
	t.Helper()
	b.submit(page, action, url.Values{"name": {"nights"}, "conditions": {"policies", "refused"},
		"conditions.policies.minutes": {"7"}, "conditions.refused.over": {"0"}, "conditions.refused.policy": {"*"},
		"repeat_after": {"0"}}).goes(page + "&done=hook")
	changed, err := w.Webhook(t.Context(), w.admin, h.ID)
	w.must(err)
	if want := []service.Condition{{Kind: service.AlertRefused, Count: 20, Minutes: 5, Policy: "*"},
		{Kind: service.AlertPolicies, Minutes: 7}}; !slices.Equal(changed.Conditions, want) ||
		changed.Name != "nights" || changed.RepeatAfter != 0 || changed.URL != h.URL {
		t.Errorf("the webhook is %+v", changed)
	}

	// The form shows what was saved.
	form := b.get(page).form(action)
	for field, want := range map[string]string{"name": "nights", "repeat_after": "0s",
		"conditions.policies.minutes": "7", "conditions.refused.policy": "*", "conditions.refused.over": "0"} {
		if form.Get(field) != want {
			t.Errorf("%s is %q, want %q", field, form.Get(field), want)
		}
	}
	if !slices.Equal(form["conditions"], []string{"refused", "policies"}) {
		t.Errorf("the conditions are %q", form["conditions"])
	}

	b.submit(page, action+"/status", nil).goes(page + "&done=hookoff")
	b.submit(page, action, url.Values{"name": {"days"}}).goes(page + "&done=hook") // which leaves it off
	if off, err := w.Webhook(t.Context(), w.admin, h.ID); err != nil || off.Enabled || off.Name != "days" {
		t.Errorf("%+v %v", off, err)
	}
	b.submit(page, action+"/status", nil).goes(page + "&done=hookon")
	b.post(action+"/status", url.Values{"do": {"x"}}).want(http.StatusBadRequest)
}

// Every mistake is beside its field and in the summary, and what was filled in is still there.
func TestWebhookFormShowsAllMistakes(t *testing.T) {
	w, b := asAdmin(t)
	h := w.watch("http://127.0.0.1:1")
	form := url.Values{"name": {""}, "url": {"http://10.0.0.1/"}, "repeat_after": {"soon"},
		"conditions":              {"refused", "policies", "redis"},
		"conditions.refused.over": {"many"}, "conditions.refused.count": {"0"}, "conditions.refused.minutes": {"99"},
		"conditions.refused.policy": {"No\x01Policy"}, "conditions.policies.minutes": {"-1"},
		"conditions.redis.minutes": {"1441"}, "conditions.bypassed.minutes": {"x"}}
	for _, action := range []string{"/alerts", "/alerts/" + h.ID} {
		got := b.post(action, form).want(http.StatusUnprocessableEntity)
		for _, field := range []string{"name", "url", "apps", "repeat_after", "conditions.refused.over",
			"conditions.refused.count", "conditions.refused.minutes", "conditions.refused.policy",
			"conditions.policies.minutes", "conditions.redis.minutes"} {
			if got.mistake(field) == "" || !got.links("#"+field) || got.byID(field) == nil {
				t.Errorf("%s: the mistake is %q, in the summary: %v", field, got.mistake(field), got.links("#"+field))
			}
		}
		kept := got.form(action)
		for field := range form {
			if !slices.Equal(kept[field], form[field]) {
				t.Errorf("%s became %q", field, kept[field])
			}
		}
		if got.mistake("conditions.bypassed.minutes") != "" {
			t.Error("a condition that is not chosen is wrong")
		}
	}

	bare := hookForm("a")
	bare.Del("conditions")
	if got := b.post("/alerts", bare).want(http.StatusUnprocessableEntity); got.mistake("conditions") == "" {
		t.Errorf("without a condition: %s", got.text)
	}
}

// Only an administrator sees all applications.
func TestWebhookForAllIsOfAdministrators(t *testing.T) {
	w := newWorld(t)
	w.person("owner", map[string]service.Role{"a": service.Owner})
	owner := w.as("owner")
	if got := owner.get("/alerts?webhook=new"); got.form("/alerts") == nil || strings.Contains(got.text, `name="all"`) {
		t.Error("an owner is offered all applications")
	}
	all := hookForm()
	all["all"] = []string{"yes"}
	owner.post("/alerts", all).want(http.StatusForbidden)
	w.as("admin").post("/alerts", all).want(http.StatusOK)
}

// Names, URLs and the errors of receivers are shown as text.
func TestEscapeWebhooks(t *testing.T) {
	w, b := asAdmin(t)

	said := ""
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		w.Write([]byte(said))
	}))
	t.Cleanup(receiver.Close)
	h := w.watch(receiver.URL)
	page := "/alerts?webhook=" + h.ID

	for i, text := range injections() {
		draft := h.WebhookDraft
		draft.Name = "x" + text[:min(len(text), service.MaxWebhookName-1)]
		draft.URL = receiver.URL + "/?x=" + strings.NewReplacer("#", "", " ", "").Replace(text)
		if err := w.UpdateWebhook(t.Context(), w.admin, h.ID, draft); err != nil {
			draft.URL = receiver.URL
			w.must(w.UpdateWebhook(t.Context(), w.admin, h.ID, draft))
		}

		// To be sent takes long, so not each text is an answer of the receiver.
		if said = text; i%10 == 0 {
			b.post("/alerts/"+h.ID+"/test", nil).goes(page + "&tested=yes")
		}
		got := b.get(page + "&tested=yes").want(http.StatusOK)
		got.harmless("the page with " + text)
		if name := words(got.byID("webhook")); name != strings.TrimSpace(draft.Name) {
			t.Errorf("the heading is %q, want %q", name, draft.Name)
		}

		for _, form := range []url.Values{{"name": {text}, "url": {text}, "repeat_after": {text}, "apps": {text},
			"conditions": {text}}, {"conditions": {"refused"}, "conditions.refused.over": {text},
			"conditions.refused.policy": {text}}} {
			b.post("/alerts", form).want(http.StatusUnprocessableEntity).harmless("the form with " + text)
		}
		b.get("/alerts?webhook=" + url.QueryEscape(text)).want(http.StatusNotFound).harmless("the webhook " + text)
		if t.Failed() {
			return
		}
	}
}

func TestMessageBehindAnotherNamesNoAttempt(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	message := func(id, app string, next time.Time) service.Delivery {
		return service.Delivery{ID: id, Kind: "policies", App: app, NextAt: next}
	}

	// The newest are the first. The end of an alert waits until its beginning was sent.
	h := hook{service.Webhook{Deliveries: []service.Delivery{
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
