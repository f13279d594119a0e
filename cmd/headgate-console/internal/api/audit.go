package api

import (
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
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
		Before: rawOrNull(e.Before), After: rawOrNull(e.After), RequestID: e.RequestID, Address: e.Address,
		Note: e.Note,
	}
}

// rawOrNull returns a text that is valid JSON, or null for any other.
func rawOrNull(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

// auditParams are the parameters that select entries.
var auditParams = []string{"actor", "object", "action", "outcome", "since", "until"}

// auditQuery reads the parameters of the query.
func (c *call) auditQuery() (service.AuditQuery, error) {
	q := &c.query
	ask := service.AuditQuery{
		Actor: q.text("actor"), Object: q.text("object"), Action: q.text("action"),
		Outcome: service.Outcome(q.text("outcome")), Since: q.instant("since"), Until: q.instant("until"),
		Before: q.number("before"), PerPage: q.small("per_page"),
	}
	return ask, q.err()
}

// auditCSV answers with all entries that the query selects.
func (c *call) auditCSV() error {
	ask, err := c.auditQuery()
	if err != nil {
		return err
	}
	return c.csv("audit.csv", func(w io.Writer) error { return c.o.Service.AuditCSV(c.ctx(), c.actor, ask, w) })
}

func (c *call) audit() error {
	ask, err := c.auditQuery()
	if err != nil {
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
