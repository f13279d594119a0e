package api

import (
	"strings"
	"testing"
)

func TestWebhookIsMadeChangedAndDeleted(t *testing.T) {
	w := newWorld(t)
	made := w.ask("owner", "POST", "/api/alerts", hook()).want(201)
	secret, _ := made.get("secret").(string)
	id, _ := made.get("webhook", "id").(string)

	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("the secret is %q", secret)
	}

	path := "/api/alerts/" + id
	draft := hook()

	// The conditions are sent in another order than that in which they are kept.
	draft["conditions"] = []object{{"kind": "full", "minutes": 0, "over": 90},
		{"kind": "refused", "minutes": 5, "over": 0, "at_least": 10, "policy": "*"}}
	draft["repeat_after"] = 3600

	changed := w.ask("owner", "PUT", path, draft).want(200).wantValue(3600, "repeat_after").wantValue(false, "all")
	if kinds := strings.Join(changed.names("conditions", "kind"), " "); kinds != "refused full" {
		t.Errorf("the conditions are %s", kinds)
	}
	// A change is answered with the webhook, whatever the client has.
	w.ask("owner", "PUT", path, draft, "If-None-Match", "*").want(200).wantValue(3600, "repeat_after")
	w.ask("owner", "GET", path, nil, "If-None-Match", "*").want(304)

	// Nothing listens at the address, so the test fails, also while the webhook is off.
	w.ask("owner", "PUT", path+"/disabled", nil).want(204)
	w.ask("owner", "GET", path, nil).want(200).wantValue(true, "disabled")
	w.ask("owner", "POST", path+"/test", nil).want(200).wantValue("failed", "state").wantValue("test", "event")

	// The new secret is in this answer and nowhere else.
	again, _ := w.ask("owner", "POST", path+"/secret", nil).want(200).get("secret").(string)
	if again == secret || !strings.HasPrefix(again, "whsec_") {
		t.Errorf("the new secret is %q", again)
	}

	read := w.ask("owner", "GET", path, nil).want(200)
	if strings.Contains(read.text, secret) || strings.Contains(read.text, again) ||
		len(read.get("deliveries").([]any)) != 1 {
		t.Errorf("%s", read.text)
	}

	// The other webhook is the one of the world.
	if n := len(w.ask("owner", "GET", "/api/alerts", nil).want(200).get("webhooks").([]any)); n != 2 {
		t.Errorf("%d webhooks", n)
	}

	w.ask("owner", "DELETE", path, nil).want(204)
	w.ask("owner", "GET", path, nil).want(404)
}

func TestWebhookMistakesNameTheField(t *testing.T) {
	w := newWorld(t)
	// Each row changes one field of a webhook that is right. The first is an address inside of a
	// cloud.
	for field, change := range map[string]object{
		"url":                  {"url": "http://169.254.169.254/latest"},
		"apps":                 {"apps": []string{}},
		"repeat_after":         {"repeat_after": 1e15},
		"conditions.lost.over": {"conditions": []object{{"kind": "lost", "minutes": 1, "over": 3}}},
		"conditions.refused.over": {"conditions": []object{{"kind": "refused", "minutes": 1, "at_least": 1,
			"over": 100}}},
		"conditions":                      {"conditions": []object{{"kind": "lost", "minutes": 1, "more": 1}}},
		"conditions.lost.minutes":         {"conditions": []object{{"kind": "lost", "minutes": -1}}},
		"conditions.failed-open.at_least": {"conditions": []object{{"kind": "failed-open", "minutes": 1}}},
	} {
		draft := hook()
		for name, v := range change {
			draft[name] = v
		}
		w.ask("owner", "POST", "/api/alerts", draft).wantField(field)
	}

	// Only an administrator sees all applications.
	all := hook()
	all["apps"], all["all"] = []string{}, true
	w.ask("owner", "POST", "/api/alerts", all).want(403)
	w.ask("administrator", "POST", "/api/alerts", all).want(201)
}
