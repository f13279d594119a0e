package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/console/internal/service"
)

// audit is the page of the audit log.
type audit struct {
	Actor, Object, Action, Outcome, Since, Until string

	Entries  []service.Entry
	Mistakes mistakes
	Older    string // the address of the next page, or ""
}

const (
	perAudit = 50
	day      = "2006-01-02"
)

func auditPage(v *request) error {
	a := audit{
		Actor: v.query("actor"), Object: v.query("object"), Action: v.query("action"), Outcome: v.query("outcome"),
		Since: v.query("since"), Until: v.query("until"), Mistakes: mistakes{},
	}
	q := service.AuditQuery{
		Actor: a.Actor, Object: a.Object, Action: a.Action, Outcome: service.Outcome(a.Outcome), PerPage: perAudit,
		Since: a.date("since", a.Since, 0), Until: a.date("until", a.Until, 1),
	}
	if before, err := strconv.ParseInt(v.query("before"), 10, 64); err == nil {
		q.Before = before
	}
	list, err := v.Service.Audit(v.r.Context(), v.actor, q)
	if m := mistakesOf(err); m != nil {
		a.Mistakes = m
	} else if err != nil {
		return err
	}
	a.Entries = list
	if len(list) == perAudit {
		a.Older = a.link(list[len(list)-1].ID)
	}
	status := http.StatusOK
	if len(a.Mistakes) > 0 {
		status = http.StatusUnprocessableEntity
	}
	return v.show(status, "audit", "Audit log", a)
}

// date reads a day, and returns the start of the day that is later days after it.
func (a *audit) date(field, text string, later int) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(day, text)
	if err != nil {
		a.Mistakes.add(field, "it is not a day such as 2026-03-01")
		return time.Time{}
	}
	return t.AddDate(0, 0, later)
}

func (a *audit) link(before int64) string {
	u := url.Values{"before": {strconv.FormatInt(before, 10)}}
	for name, value := range map[string]string{
		"actor": a.Actor, "object": a.Object, "action": a.Action, "outcome": a.Outcome, "since": a.Since, "until": a.Until,
	} {
		if value != "" {
			u.Set(name, value)
		}
	}
	return "/audit?" + u.Encode()
}
