package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/live"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// bans is the page of the keys that are banned.
type bans struct {
	Policy string // only its bans; "" for those of all policies

	Every bool   // the browser reloads the page without JavaScript
	Query string // of this page

	Redis bool
	Away  bool // Redis does not answer
	At    time.Time
	Bans  []ban // those that last longest first
	More  int   // that are not shown
	Some  bool  // some policy bans
}

// ban is a key that is banned.
type ban struct {
	Policy  string
	Key     string // as people read it
	Sent    string // as a form sends it
	Until   time.Time
	Left    time.Duration
	CanLift bool
}

// maxBans is the largest number of bans that are shown.
const maxBans = 500

func (b *bans) refresh() int { return reload(b.Every) }

func bansPage(r *request) error {
	b, err := r.bans(func(ctx context.Context, names []string) ([]core.Banned, error) {
		return r.Fleet.Bans(ctx, names)
	})
	if err != nil {
		return err
	}
	return r.show(http.StatusOK, "bans", "Bans", b)
}

// liveBans answers with the part of the page that the script reloads.
func liveBans(r *request) error {
	b, err := r.bans(func(_ context.Context, names []string) ([]core.Banned, error) { return r.recentBans(names) })
	if err != nil {
		return err
	}
	return r.fragment("bans", "live", b)
}

// bans returns the page, for which read reads the bans of policies.
func (r *request) bans(read func(context.Context, []string) ([]core.Banned, error)) (*bans, error) {
	b := &bans{Policy: r.query("policy"), Every: r.query("refresh") != "", Redis: r.Fleet != nil, At: r.Clock()}
	if b.Policy != "" {
		b.Query = url.Values{"policy": {b.Policy}}.Encode()
	}

	banning, err := r.Service.Banning(r.req.Context(), r.actor)
	if err != nil {
		return nil, err
	}

	// The page asks for the bans of policies that the actor may see, and for no others.
	known := map[string]policy.Policy{}
	var names []string
	for _, p := range banning {
		if b.Policy == "" || b.Policy == p.Name {
			known[p.Name], names = p, append(names, p.Name)
		}
	}

	b.Some = len(names) > 0
	if b.Redis && b.Some {
		r.readBans(b, names, known, read)
	}

	return b, nil
}

// bansEvery is the time between two readings of bans for pages that reload themselves.
const bansEvery = time.Second

// newBans returns what reads bans for all who look at them, by the names of the policies.
func newBans(f Fleet) *live.Shared[string, []core.Banned] {
	return live.NewShared(live.Options[string, []core.Banned]{Every: bansEvery, Timeout: keyTimeout,
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

// readBans reads the bans of the policies from Redis. If Redis does not answer, the page
// says so.
func (r *request) readBans(
	b *bans, names []string, known map[string]policy.Policy,
	read func(context.Context, []string) ([]core.Banned, error),
) {
	list, err := read(r.req.Context(), names)
	if err != nil {
		r.Logger.WarnContext(r.req.Context(), "the bans cannot be read", "error", err)
		b.Away = true
		return
	}
	for _, banned := range list {
		if len(b.Bans) == maxBans {
			b.More++
			continue
		}

		until := time.UnixMicro(banned.Until)
		b.Bans = append(b.Bans, ban{
			Policy: banned.Rule, Key: readable(banned.Key), Sent: sentForm(banned.Key),
			Until: until, Left: until.Sub(b.At).Round(time.Second), CanLift: r.access.CanEdit(known[banned.Rule].Apps),
		})
	}
}

// readable returns a key as text that people can tell from any other: quoted as in Go
// if it holds what cannot be seen.
func readable(key string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	unlikeText := key == "" || key[0] == '"' || !utf8.ValidString(key)
	if unlikeText || strings.ContainsFunc(key, hidden) || strings.TrimSpace(key) != key {
		return strconv.Quote(key)
	}
	return key
}

// bansPath returns the address of the bans of a policy, or of all.
func bansPath(name string) string {
	if name == "" {
		return "/bans"
	}
	return "/bans?policy=" + url.QueryEscape(name)
}
