package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// audit is the page of the audit log.
type audit struct {
	Actor, Object, Action, Outcome, Since, Until string

	Entries  []service.Entry
	Mistakes mistakes
	Older    string // the address of the next page, or ""
	Export   string // the address of all pages as a file
}

const (
	perAudit = 50
	notDay   = "it is not a day such as 2026-03-01"
)

// auditQuery reads the filter of the audit log. The mistakes of its dates are in the page.
func (r *request) auditQuery() (audit, service.AuditQuery) {
	a := audit{
		Actor: r.query("actor"), Object: r.query("object"), Action: r.query("action"), Outcome: r.query("outcome"),
		Since: r.query("since"), Until: r.query("until"), Mistakes: mistakes{},
	}
	return a, service.AuditQuery{
		Actor: a.Actor, Object: a.Object, Action: a.Action, Outcome: a.Outcome, Limit: perAudit,
		Since: a.date("since", a.Since, 0), Until: a.date("until", a.Until, 1),
	}
}

// exportAudit answers with all entries that the filter selects, as CSV.
func exportAudit(r *request) error {
	a, q := r.auditQuery()
	if len(a.Mistakes) > 0 {
		return r.show(statusOf(a.Mistakes), "audit", "Audit log", a)
	}

	file := &download{v: r, name: "audit.csv"}
	err := r.Service.AuditCSV(r.req.Context(), r.actor, q, file)

	// The status is sent already. Only a connection that breaks says that the file is not whole.
	if err != nil && file.begun {
		r.Logger.ErrorContext(r.req.Context(), "the export of the audit log was cut short",
			"request_id", r.requestID(), "error", err)
		panic(http.ErrAbortHandler) // the client sees that the file is not whole
	}
	return err
}

// download is a file that is sent while it is made.
type download struct {
	v     *request
	name  string
	begun bool
}

func (d *download) Write(b []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		d.v.w.Header().Set("Content-Disposition", "attachment; filename="+d.name)
	}
	return d.v.w.Write(b)
}

func auditPage(r *request) error {
	a, q := r.auditQuery()
	if before, err := strconv.ParseInt(r.query("before"), 10, 64); err == nil {
		q.Before = before
	}

	list, err := r.Service.Audit(r.req.Context(), r.actor, q)
	if m := mistakesOf(err); m != nil {
		a.Mistakes = m
	} else if err != nil {
		return err
	}

	a.Entries = list
	a.Export = "/audit/export?" + a.values().Encode()

	// A full page may be the last one. Its link then leads to an empty page, which costs less than
	// a look ahead.
	if len(list) == perAudit {
		a.Older = a.link(list[len(list)-1].ID)
	}

	return r.show(statusOf(a.Mistakes), "audit", "Audit log", a)
}

// date reads a day, and returns the start of the day that is later days after it.
func (a *audit) date(field, text string, later int) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		a.Mistakes.add(field, notDay)
		return time.Time{}
	}
	return t.AddDate(0, 0, later)
}

func (a *audit) link(before int64) string {
	u := a.values()
	u.Set("before", strconv.FormatInt(before, 10))
	return "/audit?" + u.Encode()
}

// values returns the filter.
func (a *audit) values() url.Values {
	return given(map[string]string{
		"actor": a.Actor, "object": a.Object, "action": a.Action, "outcome": a.Outcome, "since": a.Since,
		"until": a.Until,
	})
}
