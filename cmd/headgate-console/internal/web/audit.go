package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// audit is the page of the audit log.
type audit struct {
	url.Values // the filter
	Entries    []auditEntry
	Mistakes   mistakes
	Older      string // the address of the next page, or ""
	Export     string // the address of all pages as a file
}

// auditEntry is a line of the page.
type auditEntry struct {
	service.Entry
	Path string // the page of what was acted on, or "" if there is none
}

const (
	perAudit = 50
	notDay   = "it is not a day such as 2026-03-01"
)

// auditQuery reads the filter of the audit log. The mistakes of its dates are in the page.
func (r *request) auditQuery() (audit, service.AuditQuery) {
	a := audit{Values: url.Values{}, Mistakes: mistakes{}}
	for _, name := range []string{"actor", "object", "action", "outcome", "since", "until"} {
		if r.query(name) != "" {
			a.Set(name, r.query(name))
		}
	}
	return a, service.AuditQuery{
		Actor: a.Get("actor"), Object: a.Get("object"), Action: a.Get("action"), Outcome: a.Get("outcome"),
		Limit: perAudit, Since: a.date("since", 0), Until: a.date("until", 1),
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

	if a.Entries, err = r.auditEntries(list); err != nil {
		return err
	}
	a.Export = "/audit/export?" + a.Encode()

	// A full page may be the last one. Its link then leads to an empty page, which costs less than
	// a look ahead.
	if len(list) == perAudit {
		older := maps.Clone(a.Values)
		older.Set("before", strconv.FormatInt(list[len(list)-1].ID, 10))
		a.Older = "/audit?" + older.Encode()
	}

	return r.show(statusOf(a.Mistakes), "audit", "Audit log", a)
}

// auditEntries adds the pages of what was acted on.
func (r *request) auditEntries(list []service.Entry) ([]auditEntry, error) {
	entries := make([]auditEntry, len(list))
	pages := map[string]string{} // by object, as many lines are about the same
	hooks := sync.OnceValues(func() ([]service.Webhook, error) { return r.Service.Webhooks(r.req.Context(), r.actor) })

	for i, e := range list {
		path, known := pages[e.Object]
		if !known {
			var err error
			path, err = r.pageOf(e.Object, hooks)
			if err != nil && !errors.Is(err, service.ErrNotFound) {
				return nil, err
			}
			pages[e.Object] = path
		}

		entries[i] = auditEntry{e, path}
		if name, is := strings.CutPrefix(e.Object, "policy:"); is && path != "" {
			if key := keyActedOn(e); key != "" {
				entries[i].Path = keysPath(name, key)
			}
		}
	}
	return entries, nil
}

// pageOf returns the page of an object of the audit log. It is "", or the error is ErrNotFound, if
// the object is no more, or has no page that the actor sees. hooks returns the webhooks that the
// actor sees.
func (r *request) pageOf(object string, hooks func() ([]service.Webhook, error)) (string, error) {
	ctx := r.req.Context()
	kind, name, _ := strings.Cut(object, ":")

	switch kind {
	// These have a page each.
	case "policy":
		_, err := r.Service.Policy(ctx, r.actor, name)
		return whereFound(policyPath(name), err)
	case "user":
		_, err := r.Service.User(ctx, r.actor, name)
		return whereFound(userPath(name), err)

	// These are on a page with others of their kind.
	case "app":
		if !r.sees(name) {
			return "", nil
		}
		return "/policies?" + url.Values{"app": {name}}.Encode(), nil
	case "webhook":
		list, err := hooks()
		if err != nil || !slices.ContainsFunc(list, func(w service.Webhook) bool { return w.ID == name }) {
			return "", err
		}
		return "/alerts", nil

	case "settings":
		return "/settings", nil
	}
	return "", nil
}

// whereFound returns the path unless there is an error.
func whereFound(path string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return path, nil
}

// keyActedOn returns the key that an entry is about, or "" if it is about none or has its digest
// alone.
func keyActedOn(e service.Entry) string {
	kind, _, _ := strings.Cut(e.Action, ".")
	if !slices.Contains([]string{"key", "ban", "override"}, kind) {
		return ""
	}

	// A text that was cut cannot be read, and a prefix stands for many keys.
	var of struct{ Key string }
	err := json.Unmarshal([]byte(cmp.Or(e.After, e.Before)), &of)
	if _, isPrefix := policy.OverriddenPrefix(of.Key); err != nil || isPrefix {
		return ""
	}
	return of.Key
}

// date reads a day, and returns the start of the day that is later days after it.
func (a *audit) date(field string, later int) time.Time {
	text := a.Get(field)
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
