package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// policyDetail is the page of a policy.
type policyDetail struct {
	row
	Limit   string
	Drawing string
	Fields  []value // that are set
	CanCopy bool
	Menu    modeMenu
	Traffic policyTraffic
	Beside  beside
	Recent  []step // of the history
}

// policyTraffic is what a policy decides, and where it is in force.
type policyTraffic struct {
	Name     string
	Query    string // of the page
	Ranges   []link
	From, To time.Time
	Chart    chart
	Total    figures
	Lately   figures // of the last minutes
	Refused  *keys   // the keys that it refused most in them
	CSV      string  // the address of the file
	Redis    bool
	Late     bool
	Off      bool
	Fleet    fleetView
	Behind   bool // the newest policies are not published yet
	Shadow   *watched

	unfolded
}

// InForce returns in how many instances the newest policies are in force.
func (p policyTraffic) InForce() int {
	if p.Behind {
		return 0
	}
	return p.Fleet.Current
}

// Share returns the share of requests that it refused, or in shadow would have refused, or "".
func (p policyTraffic) Share(f figures) string {
	if p.Shadow != nil {
		return share(f.Of("shadow"), f.All)
	}
	return f.Share()
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
	if t.Lately, err = r.decided(p.Name, lately); err != nil {
		return t, err
	}
	if t.Refused, err = r.mostRefused(p); err != nil {
		return t, err
	}
	t.Shadow, err = r.watched(p, shown)
	return t, err
}

// lately is the time that a page calls now. Counts arrive within 80 seconds.
const lately = 5 * time.Minute

// decided returns what a policy decided in a time until now.
func (r *request) decided(name string, span time.Duration) (figures, error) {
	seen, err := r.Service.Traffic(r.req.Context(), r.actor, service.TrafficQuery{Policy: name, Last: span})
	if err != nil {
		return figures{}, err
	}
	return figuresOf(seen.Total), nil
}

// mostKeys is how many keys the page of a policy has. The page of keys has more.
const mostKeys = 5

// mostRefused returns the keys that a policy refused most in the last minutes, in all of its
// applications that the actor sees.
func (r *request) mostRefused(p policy.Policy) (*keys, error) {
	k := &keys{Policy: p.Name, Redis: r.Fleet != nil, policies: map[string]*policy.Policy{p.Name: &p}}
	if !k.Redis {
		return k, nil
	}

	var all stats.Top
	var lists []topkeys.Summary
	for _, app := range p.Apps {
		if !r.sees(app) {
			continue
		}
		top, err := r.Service.Top(r.req.Context(), r.actor, app)
		if errors.Is(err, service.ErrNoFleet) {
			k.Away = true
			return k, nil
		}
		if err != nil {
			return nil, err
		}
		all.Instances += top.Instances
		for _, rule := range top.Rules {
			if rule.Rule == p.Name {
				lists = append(lists, rule.Refused)
			}
		}
	}
	all.Rules = []topkeys.Rule{{Rule: p.Name, Refused: topkeys.Merge(maxRows, lists...)}}
	k.addTop(all)

	// The page shows the bans of these keys alone, so they are all that it asks for.
	var names, refused []string
	if p.Ban != (core.Ban{}) {
		names = []string{p.Name}
	}
	for _, key := range all.Rules[0].Refused.Keys {
		refused = append(refused, key.Key)
	}
	r.addStored(k, names)
	beside, err := r.Service.BansOfKeys(r.req.Context(), r.actor, p.Name, refused)
	if err != nil {
		return nil, err
	}
	k.addBeside(beside)

	k.showRefused(r, all)
	k.Rows = k.Rows[:min(mostKeys, len(k.Rows))]
	return k, r.explainBans(k.Rows)
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
	t.unfolded = r.unfolded()
	return r.fragment("policy", "live", t)
}

// value is a field of a policy with the text of its value.
type value struct{ Field, Text string }

func policyPage(r *request) error {
	p, err := r.Service.Policy(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}
	return r.showPolicy(http.StatusOK, p, modeMenu{}, beside{})
}

// recentSteps is how many changes the page of a policy has. Its history has all.
const recentSteps = 4

func (r *request) showPolicy(status int, p policy.Policy, m modeMenu, b beside) (err error) {
	page := &policyDetail{row: r.rowOf(p), Limit: p.Limit.String(), Drawing: drawingPath(p.Limit.String())}
	if page.Traffic, err = r.traffic(p, p.Version); err != nil {
		return err
	}

	if err := m.complete(r, p); err != nil {
		return err
	}
	page.Menu = m

	if err := b.complete(r, p); err != nil {
		return err
	}
	page.Beside = b

	list, err := r.Service.History(r.req.Context(), r.actor, p.Name, 0, recentSteps)
	if err != nil {
		return err
	}
	page.Recent = r.steps(list, p.Version)

	page.CanCopy, page.Fields = len(r.ownApps()) > 0, definition(p)
	return r.show(status, "policy", p.Name, page)
}

// definition returns the fields that are set, without those that stand on top of the page.
func definition(p policy.Policy) (list []value) {
	for _, c := range service.Diff(policy.Policy{}, p) {
		if c.Field == "key" {
			c.After = forWhom(c.After)
		}
		onTop := slices.Contains([]string{"name", "description", "mode"}, c.Field)
		if !onTop && (c.Field != "priority" || p.Priority != 0) {
			list = append(list, value{c.Field, c.After})
		}
	}
	return list
}

// textsOf returns the texts for people of all fields of a policy by their names.
func textsOf(p policy.Policy) map[string]string {
	texts := map[string]string{}
	for _, c := range service.Diff(policy.Policy{}, p) {
		texts[c.Field] = shown(c.Field, c.After)
	}
	return texts
}
