package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/policy"
)

// bans is the page of the keys that are banned.
type bans struct {
	Policy string // only its bans; "" for those of all policies

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

func bansPage(v *request) error {
	b := bans{Policy: v.query("policy"), Redis: v.Fleet != nil, At: v.Clock()}
	banning, err := v.Service.Banning(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	known := map[string]policy.Policy{}
	var names []string
	for _, p := range banning {
		if b.Policy == "" || b.Policy == p.Name {
			known[p.Name], names = p, append(names, p.Name)
		}
	}
	b.Some = len(names) > 0
	if b.Redis && b.Some {
		v.readBans(&b, names, known)
	}
	return v.show(http.StatusOK, "bans", "Bans", b)
}

// readBans reads the bans of the policies from Redis. If Redis does not answer, the page
// says so.
func (v *request) readBans(b *bans, names []string, known map[string]policy.Policy) {
	list, err := v.Fleet.Bans(v.r.Context(), names)
	if err != nil {
		v.Logger.WarnContext(v.r.Context(), "the bans cannot be read", "error", err)
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
			Policy: banned.Rule, Key: readable(banned.Key), Sent: base64.RawURLEncoding.EncodeToString([]byte(banned.Key)),
			Until: until, Left: until.Sub(b.At).Round(time.Second), CanLift: v.access.CanEdit(known[banned.Rule].Apps),
		})
	}
}

// readable returns a key as text that people can tell from any other: quoted as in Go
// if it holds what cannot be seen.
func readable(key string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	if key == "" || key[0] == '"' || !utf8.ValidString(key) || strings.ContainsFunc(key, hidden) || strings.TrimSpace(key) != key {
		return strconv.Quote(key)
	}
	return key
}

// liftBan ends the ban of a key, and returns to the list.
func liftBan(v *request) error {
	key, err := base64.RawURLEncoding.DecodeString(v.field("key"))
	if err != nil {
		return errBadForm
	}
	if v.Fleet == nil {
		return fmt.Errorf("%w: %w", errFleet, errNoFleet)
	}
	if err := v.Service.LiftBan(v.r.Context(), v.actor, v.field("policy"), string(key), v.lift); err != nil {
		return err
	}
	return v.seeOther(bansPath(v.field("only")), "lifted")
}

// bansPath returns the address of the bans of a policy, or of all.
func bansPath(name string) string {
	if name == "" {
		return "/bans"
	}
	return "/bans?policy=" + url.QueryEscape(name)
}

func (v *request) lift(ctx context.Context, p policy.Policy, key string) error {
	if err := v.Fleet.Lift(ctx, p, key); err != nil {
		return fmt.Errorf("%w: %w", errFleet, err)
	}
	return nil
}
