package web

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/live"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// These are the views of the page of keys, as its address names them.
const (
	viewRefused = "refused"
	viewBanned  = "banned"
	viewOne     = "one"
)

// keys is the page of keys. The address has all that it shows, so each view can be a bookmark.
type keys struct {
	App, Policy, Key string // what is chosen; Key is in its readable form
	Chosen           string // the application that links name: of the address or chosen before, or ""
	Own              bool   // the policy brought its own application
	View             string
	Mistakes         mistakes

	Names   []string // policies to choose from
	Every   bool     // the browser reloads the page without JavaScript
	Redis   bool
	Away    bool  // Redis does not answer
	NoBans  bool  // the bans are not known
	Banned  int64 // keys that are banned now
	Further bool  // the key counts under more policies than are shown

	Instances, Unread int // that publish keys, and whose lists cannot be read
	From, To          time.Time
	Rows              []keyRow
	More              int64 // rows that are not shown
	Try               *tester

	policies map[string]*policy.Policy // of the application
	lately   map[ruleKey]topkeys.Key   // what was refused in the last minutes
	bans     map[ruleKey]service.KeyBan
}

// ruleKey is a key under a policy.
type ruleKey struct{ Rule, Key string }

// keyRow is a line of the page: a key under a policy.
type keyRow struct {
	target
	Gauge *gauge // where the key was looked up

	ID           string
	Cut          bool  // only the beginning and a digest of the key are known
	Least, Count int64 // requests that were refused in the last minutes
	Share        int64 // how long the bar is, in percent
	Since        time.Time
	Ban          service.KeyBan
	Left         time.Duration // until its end
	Shadow       bool          // the policy counts the key, and refuses nothing of it
	Idle         bool          // it refuses nothing of the key, so that no ban is in force
	Degrades     bool          // it degrades requests over the limit
	Changed      bool          // the policy was changed while requests were counted
}

// keyMenu is the menu of what can be done about a row, from a page with a query.
type keyMenu struct {
	keyRow
	Here string
}

const (
	maxRows  = 50  // of a view
	maxNames = 100 // of policies to choose from
)

// Query returns the parameters of this page.
func (k *keys) Query() string { return k.query(k.View, k.Key) }

// Address returns the address of this page.
func (k *keys) Address() string { return "/keys?" + k.Query() }

// view is a view, and its address.
type view struct{ Name, Words, Address string }

// Views returns all views.
func (k *keys) Views() []view {
	return []view{{viewRefused, "Refused now", "/keys?" + k.query(viewRefused, "")},
		{viewBanned, "Banned", "/keys?" + k.query(viewBanned, "")},
		{viewOne, "One key", "/keys?" + k.query(viewOne, k.Key)}}
}

func (k *keys) query(view, key string) string {
	return given(map[string]string{"view": view, "app": k.Chosen, "policy": k.Policy, "key": key}).Encode()
}

// keysPath returns the page of a key under a policy.
func keysPath(name, key string) string {
	return "/keys?" + url.Values{"key": {readable(key)}, "policy": {name}, "view": {viewOne}}.Encode()
}

func keysPage(r *request) error {
	k, err := r.keys(r.req.URL.Query())
	if err != nil {
		return err
	}
	return r.showKeys(k)
}

// showKeys fills in the view, and shows the page.
func (r *request) showKeys(k *keys) error {
	status := http.StatusOK
	err := r.fillKeys(k)
	if m := mistakesOf(err); m != nil {
		k.Mistakes, err = m, nil
	}
	// What a request meets is shown without the counts.
	if k.Try != nil && errors.Is(err, service.ErrNoFleet) {
		k.Away, k.Rows, err = true, nil, nil
	}
	if err != nil {
		return err
	}
	if k.Mistakes != nil || k.Try != nil && k.Try.Mistakes != nil {
		status = http.StatusUnprocessableEntity
	}

	if k.View == viewOne && k.Try == nil {
		k.Try = tryAs(keyOf(k.Key))
	}
	r.reloads = k.Every && k.View != viewOne
	return r.show(status, "keys", "Keys", k)
}

// liveKeys answers with the part of the page that the script reloads. A look-up is in the audit
// log, so that of one key is not repeated.
func liveKeys(r *request) error {
	k, err := r.keys(r.req.URL.Query())
	if err != nil {
		return err
	}
	if k.View == viewOne {
		return service.ErrNotFound
	}
	if err := r.fillKeys(k); err != nil {
		return err
	}
	return r.fragment("keys", "live", k)
}

// keys returns the page that parameters choose, without what it shows.
func (r *request) keys(v url.Values) (*keys, error) {
	k := &keys{App: v.Get("app"), Policy: strings.TrimSpace(v.Get("policy")), Key: v.Get("key"),
		View: v.Get("view"), Every: v.Get("refresh") != "", Redis: r.Fleet != nil}
	// A key that is typed is looked up, from whichever view.
	switch {
	case strings.TrimSpace(k.Key) != "":
		k.View = viewOne
	case k.View != viewBanned && k.View != viewOne:
		k.View = viewRefused
	}

	if err := r.chooseApp(k, v.Get("app")); err != nil || k.App == "" {
		return k, err
	}

	list, err := r.Service.PoliciesOf(r.req.Context(), r.actor, k.App)
	if err != nil {
		return nil, err
	}
	k.policies = map[string]*policy.Policy{}
	for i, p := range list {
		k.policies[p.Name] = &list[i]
		if len(k.Names) < maxNames {
			k.Names = append(k.Names, p.Name)
		}
	}
	return k, nil
}

// chooseApp sets the application that the page is about: that of the address, or the one that was
// chosen last, or the first. A policy that is not of it brings its own, as links of messages have
// no other. Only what was in the address or chosen goes into links, which choose it again.
func (r *request) chooseApp(k *keys, named string) error {
	if named != "" && !r.sees(named) {
		return service.ErrNotFound
	}

	if k.Chosen = named; named == "" {
		k.Chosen = r.chosenApp()
	}
	if k.App = k.Chosen; k.App == "" && len(r.apps) > 0 {
		k.App = r.apps[0].Name
	}
	if k.Policy == "" || k.App == "" {
		return nil
	}

	p, err := r.Service.Policy(r.req.Context(), r.actor, k.Policy)
	if errors.Is(err, service.ErrNotFound) {
		k.Mistakes = mistakes{"policy": {errNoPolicy}}
		return nil
	}
	at := slices.IndexFunc(p.Apps, r.sees)
	if err != nil || at < 0 {
		return err
	}
	if k.Own = !slices.Contains(p.Apps, k.App); k.Own {
		k.App, k.Chosen = p.Apps[at], ""
	}
	return nil
}

// fillKeys adds the rows of the view. If Redis does not answer, the page says so, and a look-up
// fails.
func (r *request) fillKeys(k *keys) error {
	if k.App == "" || !k.Redis || k.Mistakes != nil || k.View == viewOne && strings.TrimSpace(k.Key) == "" {
		return nil
	}

	top, err := r.Service.Top(r.req.Context(), r.actor, k.App)
	switch {
	case errors.Is(err, service.ErrNoFleet):
		r.Logger.WarnContext(r.req.Context(), "the top keys cannot be read", "app", k.App, "error", err)
		k.Away = k.View != viewOne
	case err != nil:
		return err
	}
	k.addTop(top)
	if k.View == viewOne {
		if err := r.lookUp(k); err != nil {
			return err
		}
		return r.explainBans(k.Rows)
	}

	// A Redis that does not answer is not asked again.
	if !k.Away {
		if err := r.addBans(k); err != nil {
			return err
		}
	}
	if k.View == viewBanned {
		k.Away = k.Away || k.NoBans
		k.showBanned(r)
	} else {
		k.showRefused(r, top)
	}
	return r.explainBans(k.Rows)
}

// explainBans adds to the rows that are shown who banned their keys.
func (r *request) explainBans(rows []keyRow) error {
	var bans []*service.KeyBan
	for i := range rows {
		if rows[i].Banned {
			bans = append(bans, &rows[i].Ban)
		}
	}
	return r.Service.ExplainBans(r.req.Context(), r.actor, bans)
}

// addTop notes what was refused in the last minutes.
func (k *keys) addTop(top stats.Top) {
	k.Instances, k.Unread, k.lately = top.Instances, top.Unread, map[ruleKey]topkeys.Key{}
	for _, rule := range top.Rules {
		s := rule.Refused
		for _, key := range s.Keys {
			k.lately[ruleKey{rule.Rule, key.Key}] = key
		}

		// The page names the time that all lists together are about.
		if k.From.IsZero() || !s.From.IsZero() && s.From.Before(k.From) {
			k.From = s.From
		}
		if s.To.After(k.To) {
			k.To = s.To
		}
	}
}

// addBans notes the bans of the policies that are chosen.
func (r *request) addBans(k *keys) error {
	var names, chosen []string
	for name, p := range k.policies {
		if k.Policy != "" && k.Policy != name {
			continue
		}
		if chosen = append(chosen, name); p.Ban != (core.Ban{}) {
			names = append(names, name)
		}
	}
	slices.Sort(names)

	r.addStored(k, names)
	beside, err := r.Service.BansBeside(r.req.Context(), r.actor, chosen)
	k.addBeside(beside)
	return err
}

// addStored notes the bans that the store has of the policies of the names.
func (r *request) addStored(k *keys, names []string) {
	// What reloads itself shares its readings with all who look.
	read := r.recentBans
	if !r.poll {
		read = func(names []string) ([]core.Banned, error) { return r.Fleet.Bans(r.req.Context(), names) }
	}
	list, err := read(names)
	if err != nil {
		r.Logger.WarnContext(r.req.Context(), "the bans cannot be read", "error", err)
		k.NoBans = true
	}

	k.bans = make(map[ruleKey]service.KeyBan, len(list))
	for _, b := range list {
		until := time.UnixMicro(b.Until)
		k.bans[ruleKey{b.Rule, b.Key}] = service.KeyBan{Policy: b.Rule, Key: b.Key, Until: until}
	}
}

// addBeside notes bans beside policies, of which a key has the one that lasts longest.
func (k *keys) addBeside(list []service.KeyBan) {
	for _, b := range list {
		if at := (ruleKey{b.Policy, b.Key}); b.Until.After(k.bans[at].Until) {
			k.bans[at] = b
		}
	}
	k.Banned = int64(len(k.bans))
}

// showRefused adds the keys that are refused, those that are refused most first. Those that a
// policy in shadow counts follow.
func (k *keys) showRefused(r *request, top stats.Top) {
	type refused struct {
		ruleKey
		count  int64
		shadow bool
	}
	var all []refused
	for _, rule := range top.Rules {
		if k.Policy != "" && rule.Rule != k.Policy {
			continue
		}
		p := k.policies[rule.Rule]
		for _, key := range rule.Refused.Keys {
			all = append(all, refused{ruleKey{rule.Rule, key.Key}, key.Count, p != nil && isShadow(p, key.Key)})
		}
	}

	slices.SortStableFunc(all, func(a, b refused) int {
		switch {
		case a.shadow == b.shadow:
			return cmp.Compare(b.count, a.count)
		case a.shadow:
			return 1
		}
		return -1
	})
	k.showFirst(r, len(all), func(i int) ruleKey { return all[i].ruleKey },
		func(row *keyRow) float64 { return float64(row.Count) })
}

// showBanned adds the keys that are banned, those whose bans last longest first.
func (k *keys) showBanned(r *request) {
	all := slices.SortedFunc(maps.Values(k.bans), func(a, b service.KeyBan) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
	})
	k.showFirst(r, len(all), func(i int) ruleKey { return ruleKey{all[i].Policy, all[i].Key} },
		func(row *keyRow) float64 { return float64(row.Left) })
}

// showFirst adds rows for the first of n keys, with bars as long as their measure.
func (k *keys) showFirst(r *request, n int, at func(int) ruleKey, measure func(*keyRow) float64) {
	most := 1.0
	for i := range min(n, maxRows) {
		key := at(i)
		k.Rows = append(k.Rows, k.row(r, key.Rule, key.Key))
		most = max(most, measure(&k.Rows[i]))
	}
	k.More = int64(n - len(k.Rows))

	// The longest bar is that of the largest measure.
	for i := range k.Rows {
		k.Rows[i].Share = int64(measure(&k.Rows[i]) / most * 100)
	}
}

// row returns the line of a key under a policy, with what is known of its last minutes and its ban.
func (k *keys) row(r *request, name, key string) keyRow {
	row := keyRow{target: target{Policy: name, Counted: key}, Cut: service.IsShortened(key)}
	// The row keeps its place and its open menu while the script reloads it.
	sum := fnv.New64a()
	sum.Write([]byte(name + "\x00" + key))
	row.ID = strconv.FormatUint(sum.Sum64(), 36)

	seen := k.lately[ruleKey{name, key}]
	row.Least, row.Count, row.Since = seen.Least(), seen.Count, seen.Since
	if row.Ban, row.Banned = k.bans[ruleKey{name, key}]; row.Banned {
		row.Left = row.Ban.Until.Sub(r.Clock()).Round(time.Second)
	}

	if p := k.policies[name]; p != nil {
		row.under(p)
		row.Changed = p.UpdatedAt.After(k.From)

		// A key that was cut in reports is not the one that is counted, so nothing can be done
		// to it.
		if !row.Cut {
			row.Found, row.CanEdit = p, r.access.CanEdit(p.Apps)
		}
	}
	return row
}

// isShadow reports whether the policy counts the key, and refuses nothing.
func isShadow(p *policy.Policy, key string) bool {
	partly := p.Enforce > 0 && p.Enforce < core.Whole
	return p.Mode == policy.Shadow || partly && !p.Enforce.Has(p.Name, key)
}

// under notes what the policy does about the key.
func (k *keyRow) under(p *policy.Policy) {
	k.Shadow = isShadow(p, k.Counted)
	k.Idle, k.Degrades = k.Shadow || p.Mode == policy.Off, p.OnLimit == "degrade"
}

// bansEvery is the time between two readings of bans for pages that reload themselves, and
// bansTimeout bounds one.
const (
	bansEvery   = time.Second
	bansTimeout = 5 * time.Second
)

// newBans returns what reads bans for all who look at them, by the names of the policies.
func newBans(f service.Fleet) *live.Shared[string, []core.Banned] {
	return live.NewShared(live.Options[string, []core.Banned]{Every: bansEvery, Timeout: bansTimeout,
		Read: func(ctx context.Context, names string, _ []core.Banned) ([]core.Banned, error) {
			return f.Bans(ctx, strings.Fields(names))
		}})
}

// recentBans returns the bans of policies as they were at most about a second ago.
func (r *request) recentBans(names []string) ([]core.Banned, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return r.recent.Get(r.req.Context(), strings.Join(names, " "))
}

// readable returns a key as text that people can tell from any other: quoted as in Go
// if it holds what cannot be seen. Addresses, forms and the search have keys as this text.
func readable(key string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	unlikeText := key == "" || key[0] == '"' || !utf8.ValidString(key)
	if unlikeText || strings.ContainsFunc(key, hidden) || strings.TrimSpace(key) != key {
		return strconv.Quote(key)
	}
	return key
}

// keyOf returns the key that readable has made a text of, or that a person has typed.
func keyOf(text string) string {
	if key, err := strconv.Unquote(text); err == nil && text[0] == '"' {
		return key
	}
	return text
}
