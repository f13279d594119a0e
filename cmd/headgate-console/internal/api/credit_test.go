package api

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
)

func TestCreditOfKeys(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "PUT", "/api/policies/calls", login(object{"limit": "5/1h fixed-window debt=3", "key": "user"}),
		"If-None-Match", "*").want(201)
	const key = "a<b>\n\""
	end := noon.Add(48 * time.Hour).Format(time.RFC3339)
	grant := func(units any) answer {
		return w.ask("owner", "POST", "/api/policies/calls/key/grant", object{"key": key, "units": units, "until": end})
	}
	debit := func(units int) answer {
		return w.ask("owner", "POST", "/api/policies/calls/key/debit", object{"key": key, "units": units}).want(200)
	}

	// Redis has what was granted, and charges less than all of a debit.
	var granted int64
	w.redis.op = func(op core.Op) (core.Decision, error) {
		switch op.Verb {
		case core.Grant:
			granted += op.Cost
		case core.Revoke:
			granted = 0
		}
		return core.Decision{Allowed: true, Remaining: 5 + granted, Credit: granted, Taken: min(op.Cost, 1)}, nil
	}
	grant(7).want(204)
	a := w.ask("viewer", "POST", "/api/policies/calls/key", object{"key": key}).want(200).
		wantValue(12, "remaining").wantValue(7, "credit")
	list, _ := a.get("credits").([]any)
	if len(list) != 1 || at(list[0], "units") != 3. || at(list[0], "until") != noon.Format(time.RFC3339) {
		t.Errorf("%s", a.text)
	}
	w.ask("owner", "POST", "/api/policies/calls/key/revoke", object{"key": key}).want(204)
	debit(2).wantValue(1, "charged")

	// Mistakes are named by their fields, and change nothing.
	for _, row := range []struct {
		path, field string
		body        object
	}{
		{"grant", "units", object{"key": key, "units": 0, "until": end}},
		{"grant", "units", object{"key": key, "units": -1, "until": end}},
		{"grant", "until", object{"key": key, "units": 1, "until": "tomorrow"}},
		{"grant", "until", object{"key": key, "units": 1}},
		{"grant", "until", object{"key": key, "units": 1, "until": "2020-01-01T00:00:00Z"}},
		{"grant", "until", object{"key": key, "units": 1, "until": "2099-01-01T00:00:00Z"}},
		{"grant", "key", object{"key": strings.Repeat("k", 10<<10), "units": 1, "until": end}},
		{"debit", "units", object{"key": key, "units": 9}},
		{"debit", "units", object{"key": key}},
	} {
		w.ask("owner", "POST", "/api/policies/calls/key/"+row.path, row.body).wantField(row.field)
	}
	grant(1.5).want(422)
	grant(uint64(1) << 60).wantField("units")
	if granted != 0 {
		t.Errorf("%d units were granted", granted)
	}

	log := w.audit(service.AuditQuery{Action: "key.grant", Outcome: service.Done})
	if len(log) != 1 || !strings.Contains(log[0].After, `"units":7,"until":"`+end) {
		t.Errorf("the audit log has %+v", log)
	}
}

// The error of Redis is for the log, and that about a key is for the client.
func TestCreditWhileRedisIsAway(t *testing.T) {
	w := newWorld(t)
	w.asked(errors.New("dial 10.0.0.1: refused"))
	for path, body := range map[string]object{
		"grant":  {"key": "192.0.2.1", "units": 1, "until": "2030-01-31T09:00:00Z"},
		"debit":  {"key": "192.0.2.1", "units": 1},
		"revoke": {"key": "192.0.2.1"},
	} {
		a := w.ask("owner", "POST", "/api/policies/p/key/"+path, body).want(503).wantValue("unavailable", "code")
		if strings.Contains(a.text, "10.0.0.1") || !strings.Contains(w.log.String(), "10.0.0.1") {
			t.Errorf("%s: %s", path, a.text)
		}
	}
}
