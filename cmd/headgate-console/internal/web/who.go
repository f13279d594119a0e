package web

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// who is the page of the keys that are refused and admitted most.
type who struct {
	App    string
	Apps   []service.App
	Policy string // only its keys; "" for those of all policies

	Every bool   // the browser reloads the page without JavaScript
	Query string // of this page

	Redis     bool
	Away      bool // Redis does not answer
	Banned    int  // keys that policies of the application ban now
	NoBans    bool // they are not known
	Instances int
	Unread    int
	From, To  time.Time
	Rules     []whoRule // those that refuse most first
	More      int       // rules that are not shown
}

// whoRule has the keys of one rule.
type whoRule struct {
	Name              string
	Shadow            bool // it lets pass what it counts as refused
	Changed           bool // it was changed while the lists were counted
	Refused, Admitted whoList
}

// whoList is one list of keys.
type whoList struct {
	Total, Floor int64
	Keys         []whoKey // the most frequent first
	More         int      // that are not shown
}

// whoKey is one key of a list.
type whoKey struct {
	key          string
	Shown        string // as people read it
	Sent         string // as a form sends it
	Cut          bool   // only the beginning and a digest of it are known
	Count, Error int64
	Share        int64 // of all that the rule counted, in percent
	Since        time.Time

	ID     string // of its row
	Banned bool   // now
	On     *keys  // what the actor may do about it, or nil
}

// Least returns how many requests the key has certainly made.
func (w whoKey) Least() int64 { return w.Count - w.Error }

// whoTable is a list with its words.
type whoTable struct {
	Rule, Title, Word string
	List              whoList
	Query             string // of the page
}

const (
	// maxWhoRules is how many rules the page shows at most, and maxWhoKeys how many keys
	// of each list if there are several rules.
	maxWhoRules = 30
	maxWhoKeys  = 10
)

func (w *who) refresh() int { return reload(w.Every) }

func whoPage(r *request) error {
	p, err := r.who()
	if err != nil {
		return err
	}
	return r.show(http.StatusOK, "who", "Who", p)
}

// liveWho answers with the part of the page that the script reloads.
func liveWho(r *request) error {
	p, err := r.who()
	if err != nil {
		return err
	}
	return r.fragment("who", "live", p)
}

func (r *request) who() (*who, error) {
	p := &who{App: r.query("app"), Policy: r.query("policy"), Every: r.query("refresh") != "", Redis: r.Fleet != nil}
	var err error
	if p.Apps, err = r.Service.Apps(r.req.Context(), r.actor); err != nil {
		return nil, err
	}

	if p.App == "" && len(p.Apps) > 0 {
		p.App = p.Apps[0].Name
	}
	if p.App == "" {
		return p, nil
	}

	keep := url.Values{"app": {p.App}}
	if p.Policy != "" {
		keep.Set("policy", p.Policy)
	}
	p.Query = keep.Encode()

	top, err := r.Service.Top(r.req.Context(), r.actor, p.App)
	switch {
	case err == nil:
		p.fill(top)
	case !errors.Is(err, service.ErrNoFleet):
		return nil, err

	// Without a Redis there is nothing to warn of: the page says that the console has none.
	case p.Redis:
		r.Logger.WarnContext(r.req.Context(), "the top keys cannot be read", "app", p.App, "error", err)
		p.Away = true
	}

	if !p.Redis || p.Away {
		return p, nil
	}
	return p, r.addBans(p)
}

// addBans marks the keys that are banned, and says what the actor may do about each.
func (r *request) addBans(p *who) error {
	list, err := r.Service.PoliciesOf(r.req.Context(), r.actor, p.App)
	if err != nil {
		return err
	}

	known, banning := map[string]*policy.Policy{}, []string{}
	for i, pol := range list {
		known[pol.Name] = &list[i]
		if pol.Ban != (core.Ban{}) && (p.Policy == "" || p.Policy == pol.Name) {
			banning = append(banning, pol.Name)
		}
	}

	bans, err := r.recentBans(banning)
	if err != nil {
		r.Logger.WarnContext(r.req.Context(), "the bans cannot be read", "error", err)
		p.NoBans = true
	}

	p.Banned = len(bans)
	banned := map[[2]string]bool{}
	for _, b := range bans {
		banned[[2]string{b.Rule, b.Key}] = true
	}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if found := known[rule.Name]; found != nil {
			rule.Shadow, rule.Changed = found.Mode == policy.Shadow, found.UpdatedAt.After(p.From)
		}
		for word, l := range map[string]whoList{"refused": rule.Refused, "admitted": rule.Admitted} {
			for i := range l.Keys {
				k := &l.Keys[i]
				k.ID, k.Banned = word+"-"+rule.Name+"-"+k.Sent, banned[[2]string{rule.Name, k.key}]

				// A key that was cut in reports is not the one that is counted, so nothing can be
				// done to it.
				if found := known[rule.Name]; found != nil && !k.Cut && r.access.CanEdit(found.Apps) {
					k.On = &keys{Policy: rule.Name, Counted: k.key, Found: found, CanReset: true}
				}
			}
		}
	}

	return nil
}

// fill takes what is shown of the top keys.
func (w *who) fill(top stats.Top) {
	w.Instances, w.Unread = top.Instances, top.Unread

	others := func(r topkeys.Rule) bool { return w.Policy != "" && r.Rule != w.Policy }
	rules := slices.DeleteFunc(slices.Clone(top.Rules), others)
	slices.SortStableFunc(rules, func(a, b topkeys.Rule) int {
		return cmp.Or(cmp.Compare(b.Refused.Total, a.Refused.Total), cmp.Compare(b.Admitted.Total, a.Admitted.Total))
	})

	// A page about one policy has room for all of its keys.
	most := maxWhoKeys
	if w.Policy != "" {
		most = stats.MaxTop
	}
	for i, r := range rules {
		if i == maxWhoRules {
			w.More = len(rules) - i
			break
		}

		w.Rules = append(w.Rules, whoRule{
			Name: r.Rule, Refused: listOf(r.Refused, most), Admitted: listOf(r.Admitted, most),
		})

		// The page names the time that all lists together are about.
		for _, s := range []topkeys.Summary{r.Refused, r.Admitted} {
			if w.From.IsZero() || !s.From.IsZero() && s.From.Before(w.From) {
				w.From = s.From
			}
			if s.To.After(w.To) {
				w.To = s.To
			}
		}
	}
}

func listOf(s topkeys.Summary, most int) whoList {
	l := whoList{Total: s.Total, Floor: s.Floor, More: max(0, len(s.Keys)-most)}
	for _, k := range s.Keys[:min(len(s.Keys), most)] {
		key := whoKey{
			key: k.Key, Shown: readable(k.Key), Sent: sentForm(k.Key), Cut: service.IsShortened(k.Key),
			Count: k.Count, Error: k.Error, Since: k.Since,
		}

		// Only what the key has certainly made counts, so the shares of all keys are at most the
		// whole.
		if s.Total > 0 {
			key.Share = min(100, int64(float64(k.Least())/float64(s.Total)*100))
		}

		l.Keys = append(l.Keys, key)
	}
	return l
}

// sentForm returns a key as a form sends it.
func sentForm(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
