package api

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/console/internal/service"
)

type entryView struct {
	ID        int64           `json:"id"`
	At        time.Time       `json:"at"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via"`
	Action    string          `json:"action"`
	Object    string          `json:"object"`
	Outcome   string          `json:"outcome"`
	Before    json.RawMessage `json:"before"` // JSON or null
	After     json.RawMessage `json:"after"`
	RequestID string          `json:"request_id"`
	Address   string          `json:"address"`
	Note      string          `json:"note"`
}

func entryOf(e service.Entry) entryView {
	return entryView{
		ID: e.ID, At: e.At, Actor: e.Actor, Via: e.Via, Action: e.Action, Object: e.Object, Outcome: string(e.Outcome),
		Before: rawOrNull(e.Before), After: rawOrNull(e.After), RequestID: e.RequestID, Address: e.Address, Note: e.Note,
	}
}

// rawOrNull returns a text that is valid JSON, or null for any other.
func rawOrNull(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

func (c *call) audit() error {
	q := &c.query
	ask := service.AuditQuery{
		Actor: q.text("actor"), Object: q.text("object"), Action: q.text("action"), Outcome: service.Outcome(q.text("outcome")),
		Since: q.instant("since"), Until: q.instant("until"), Before: q.number("before"), PerPage: q.small("per_page"),
	}
	if err := q.err(); err != nil {
		return err
	}
	entries, err := c.o.Service.Audit(c.ctx(), c.actor, ask)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Entries []entryView `json:"entries"`
	}{mapped(entries, entryOf)}, "")
}
