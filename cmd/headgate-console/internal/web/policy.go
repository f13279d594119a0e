package web

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// policyDetail is the page of a policy.
type policyDetail struct {
	row
	Limit   string
	Drawing string
	Fields  []value
	Modes   []choice
	Traffic policyTraffic
	Pausing pausing
	Beside  beside
}

// policyTraffic is what a policy decides, and where it is in force.
type policyTraffic struct {
	Name     string
	Query    string // of the page
	Ranges   []rangeLink
	From, To time.Time
	Chart    chart
	Total    figures
	CSV      string // the address of the file
	Redis    bool
	Late     bool
	Off      bool
	Fleet    fleetView
	Behind   bool // the newest policies are not published yet
	Shadow   *watched
}

// InForce returns in how many instances the newest policies are in force.
func (p policyTraffic) InForce() int {
	if p.Behind {
		return 0
	}
	return p.Fleet.Current
}

// traffic returns what a policy decided in the range of the request. shown is the version of the
// page.
func (r *request) traffic(p policy.Policy, shown int64) (t policyTraffic, err error) {
	ctx := r.req.Context()
	q, name, links := r.rangesOf(policyPath(p.Name), nil)
	q.Policy = p.Name
	t = policyTraffic{
		Name: p.Name, Ranges: links,
		Query: url.Values{"range": {name}, "version": {strconv.FormatInt(shown, 10)}}.Encode(),
		Redis: r.Fleet != nil, Off: p.Mode == policy.Off,
	}

	seen, err := r.Service.Traffic(ctx, r.actor, q)
	if err != nil {
		return t, err
	}

	// The changes are asked for in the range that was counted, which ends with a whole step.
	changes, err := r.Service.Markers(ctx, r.actor, service.TrafficQuery{Policy: p.Name, From: seen.From, To: seen.To})
	if err != nil {
		return t, err
	}

	work, err := r.Service.Publishing(ctx, r.actor)
	if err != nil {
		return t, err
	}

	t.From, t.To, t.Late, t.Behind = seen.From, seen.To, seen.Late, work.Published < work.Version
	t.Chart, t.Total, t.CSV = chartOf(seen, changes, "decisions"), figuresOf(seen.Total), csvPath("", p.Name, seen)

	if t.Fleet, err = r.fleetView(p.Apps...); err != nil {
		return t, err
	}
	t.Fleet.without(p.Name)
	t.Shadow, err = r.watched(p, shown)
	return t, err
}

// livePolicy answers with the part of the page that the script reloads.
func livePolicy(r *request) error {
	p, err := r.Service.Policy(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}
	shown, _ := strconv.ParseInt(r.query("version"), 10, 64) // 0 is no version, and so stale
	t, err := r.traffic(p, shown)
	if err != nil {
		return err
	}
	return r.fragment("policy", "live", t)
}

// value is a field of a policy with the text of its value.
type value struct{ Field, Text string }

func policyPage(r *request) error {
	p, err := r.Service.Policy(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}
	return r.showPolicy(http.StatusOK, p, pausing{}, beside{})
}

func (r *request) showPolicy(status int, p policy.Policy, l pausing, b beside) (err error) {
	texts := textsOf(p)
	page := policyDetail{
		row: r.rowOf(p), Limit: p.Limit.String(), Drawing: drawingPath(p.Limit.String()), Modes: modes(),
	}

	if page.Traffic, err = r.traffic(p, p.Version); err != nil {
		return err
	}

	if err := l.complete(r, p); err != nil {
		return err
	}
	page.Pausing = l

	if err := b.complete(r, p); err != nil {
		return err
	}
	page.Beside = b

	for _, f := range policyFields() {
		if f != "name" {
			page.Fields = append(page.Fields, value{f, texts[f]})
		}
	}

	return r.show(status, "policy", p.Name, page)
}

// setMode changes only the mode. It asks for a confirmation before it turns a policy off.
func setMode(r *request) error {
	p, err := r.Service.Policy(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}

	// The version of the page is sent along, so that a change by another user in between is a
	// conflict.
	mine := p
	mine.Version = r.version("version")
	if err := mine.Mode.UnmarshalText([]byte(r.field("mode"))); err != nil {
		return errBadForm
	}

	if mine.Mode == policy.Off && p.Mode != policy.Off && !r.confirmed() && r.access.CanEdit(p.Apps) {
		return r.confirmOff(p, "now on", policyPath(p.Name)+"/mode", r.sent())
	}
	if asked, err := r.confirmMore(mine, policyPath(p.Name)+"/mode"); asked || err != nil {
		return err
	}

	_, err = r.Service.UpdatePolicy(r.req.Context(), r.saying(), mine)
	if m := commentMistake(err); m != nil {
		return r.showPolicy(http.StatusUnprocessableEntity, p, pausing{Mistakes: m}, beside{})
	}
	if err != nil {
		return r.conflictOr(err)
	}
	return r.seeOther(policyPath(p.Name), "mode")
}

// textsOf returns the texts for people of all fields of a policy by their names.
func textsOf(p policy.Policy) map[string]string {
	texts := map[string]string{}
	for _, c := range service.Diff(policy.Policy{}, p) {
		texts[c.Field] = shown(c.Field, c.After)
	}
	return texts
}

// policyFields are the fields that people edit, in the order of display.
func policyFields() []string {
	return []string{
		"name", "description", "apps", "limit", "cost", "refund", "count_only",
		"plans", "plan_by", "overrides", "key", "match.methods",
		"match.host", "match.path", "match.except", "match.headers", "match.query", "match.claims",
		"access", "on_limit", "enforce", "warn", "ban", "on_store_error", "mode", "priority",
	}
}
