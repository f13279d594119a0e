package web

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// beside is the part of a policy's page with the overrides of single keys, and the form for a
// further one, as the user typed it.
type beside struct {
	Name    string
	Search  string // what the keys begin with
	CanEdit bool
	All     int64 // of the policy
	Total   int64 // that the search selects
	Rows    []besideRow

	First, Next string // addresses of pages, or ""

	Key, Limit, Until string
	Mistakes          mistakes
}

// besideRow is an override.
type besideRow struct {
	service.Override
	Shown string // the key as people read it
	Sent  string // as a form sends it
	Over  bool   // it has ended
}

// HasLimit reports whether it is more than a ban.
func (b *besideRow) HasLimit() bool { return b.Limit != (core.Limit{}) }

// complete adds the overrides that the address asks for.
func (b *beside) complete(r *request, p policy.Policy) error {
	b.Name, b.Search = p.Name, r.query("search")
	page, err := r.Service.Overrides(r.req.Context(), r.actor, p.Name,
		service.OverridesQuery{Prefix: b.Search, After: r.query("after"), PerPage: perPage})
	if m := mistakesOf(err); m != nil { // of an address that was made up
		b.Search = ""
		page, err = r.Service.Overrides(r.req.Context(), r.actor, p.Name, service.OverridesQuery{PerPage: perPage})
	}
	if err != nil {
		return err
	}

	// The list is in pages, as a policy may have 100,000 of them.
	b.All, b.Total = page.All, page.Total
	b.CanEdit = page.MayEdit && p.Key != "global" // whose callers are counted together
	for _, o := range page.Overrides {
		b.Rows = append(b.Rows, besideRow{o, readable(o.Key), sentForm(o.Key), o.Ended(r.Clock())})
	}
	if page.More {
		b.Next = besidePath(p.Name, b.Search, b.Rows[len(b.Rows)-1].Key)
	}
	if r.query("after") != "" {
		b.First = besidePath(p.Name, b.Search, "")
	}
	return nil
}

// besidePath returns the address of a page of the overrides of a policy.
func besidePath(name, search, after string) string {
	q := given(map[string]string{"search": search, "after": after})
	return policyPath(name) + "?" + q.Encode() + "#overrides"
}

// setOverride sets the override that the form has, or removes the one whose button was pressed.
func setOverride(r *request) error {
	name := r.req.PathValue("name")
	b := beside{Key: r.field("key"), Limit: strings.TrimSpace(r.field("limit")), Until: r.field("until")}
	change, done, m := service.OverrideChange{Key: b.Key, Limit: b.Limit}, "override", mistakes{}
	if sent := r.req.PostForm["remove"]; len(sent) > 0 {
		key, err := base64.RawURLEncoding.DecodeString(sent[0])
		if err != nil {
			return errBadForm
		}
		change, done = service.OverrideChange{Key: string(key)}, "nooverride"
	} else if b.Limit == "" {
		m.add("limit", "it is empty; write a limit such as 100/1m")
	}
	if b.Until != "" {
		change.Until = readTime(m, "until", b.Until, "UTC").Format(time.RFC3339)
	}

	// Who may not change the policy learns that first, whatever the form has.
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "override.change", name)
	if err != nil {
		return err
	}
	if len(m) == 0 {
		_, err = r.Service.SetOverride(r.req.Context(), r.actor, name, change)
		m = mistakesOf(err)
	}
	if len(m) > 0 {
		b.Mistakes = m
		return r.showPolicy(http.StatusUnprocessableEntity, p, modeMenu{}, b)
	}
	if err != nil {
		return err
	}
	return r.seeOther(policyPath(name), done)
}

// sentForm returns a key as a form sends it.
func sentForm(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
