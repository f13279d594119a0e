package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// credit is what a key has left of grants with one end.
type credit struct {
	Units int64
	Until time.Time
}

// addCredits adds what the credit of a key consists of.
func (r *request) addCredits(ctx context.Context, g *gauge, p policy.Policy, key string) error {
	if g.Credit == 0 {
		return nil
	}
	list, err := r.Fleet.Credits(ctx, p, key)
	for _, c := range list {
		g.Credits = append(g.Credits, credit{c.Units, time.UnixMicro(c.Until)})
	}
	return fleetErr(err)
}

// CanGrant reports whether the actor may give the key units, or take them away.
func (k *keys) CanGrant() bool {
	return k.CanReset && !k.Found.LimitOf(k.Counted, time.Now()).Leased()
}

// CanDebit reports whether the actor may charge the key units beyond its limit.
func (k *keys) CanDebit() bool {
	return k.CanReset && service.CheckDebit(*k.Found, k.Counted, 1, time.Now()) == nil
}

// beforeCredit is what docs/upgrades.md says of instances that know no credit.
const beforeCredit = "An instance of a version from before credit cannot read a key that has some: it decides about " +
	"the key as while Redis is away, until the last grant of the key has ended. Grant nothing until all instances " +
	"know credit."

func askGrant(r *request, k *keys) confirmation {
	zone := r.field("zone")
	if zone == "" {
		zone = "UTC"
	}
	return confirmation{
		Title: "Grant this key units?",
		Consequences: []string{"Under " + k.Policy + " the key may use them when its limit has none left, until " +
			"they end. Several grants add up, and each keeps its own end. A ban holds in spite of them, and " +
			"a reset leaves them.", beforeCredit},
		Inputs: []input{
			{"units", "Units", r.field("units"), "a whole number, such as 10,000", ""},
			{"until", "Until", r.field("until"), "by the clock of the time zone, within ten years", "datetime-local"},
			{"zone", "Time zone", zone, "such as UTC or Europe/Berlin", ""},
		},
		Button: "Grant them",
	}
}

func (r *request) doGrant(k *keys) (page, done string, err error) {
	m := mistakes{}
	units, until := readUnits(m, r.field("units")), r.readUntil(m)
	if len(m) > 0 && k.CanReset {
		return "", "", m.err()
	}

	err = r.Service.GrantKey(r.req.Context(), r.actor, k.Policy, k.Counted, units, until,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := r.Fleet.Grant(ctx, p, key, units, until)
			return d, fleetErr(err)
		})
	return r.noticed(k, notice{Did: "granted", Units: units, Until: until.UnixMicro()}, err)
}

func askRevoke(_ *request, k *keys) confirmation {
	return confirmation{
		Title: "Revoke the units that this key was granted?",
		Consequences: []string{"Under " + k.Policy + " the key has what its limit has, and no more. Units that it " +
			"was granted and has used stay used."},
		Button: "Revoke them", Danger: true,
	}
}

func (r *request) doRevoke(k *keys) (page, done string, err error) {
	err = r.Service.RevokeKey(r.req.Context(), r.actor, k.Policy, k.Counted,
		func(ctx context.Context, p policy.Policy, key string) error {
			return fleetErr(r.Fleet.Revoke(ctx, p, key))
		})
	return r.noticed(k, notice{Did: "taken"}, err)
}

func askDebit(r *request, k *keys) confirmation {
	l := k.Found.LimitOf(k.Counted, r.Clock())
	return confirmation{
		Title: "Debit this key?",
		Consequences: []string{"Under " + k.Policy + " the key is charged units that it has used already, also if " +
			"its limit has none left: its requests are refused then, until the debt is paid. Granted units " +
			"are not charged."},
		Inputs: []input{{"units", "Units", r.field("units"), "a whole number, such as 20; " + l.String() +
			" and its debt hold " + digits(l.Capacity()+l.MaxDebt()), ""}},
		Button: "Debit the key", Danger: true,
	}
}

func (r *request) doDebit(k *keys) (page, done string, err error) {
	m := mistakes{}
	units := readUnits(m, r.field("units"))
	if len(m) > 0 && k.CanReset {
		return "", "", m.err()
	}

	charged, err := r.Service.DebitKey(r.req.Context(), r.actor, k.Policy, k.Counted, units,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := r.Fleet.Debit(ctx, p, key, units)
			return d, fleetErr(err)
		})
	return r.noticed(k, notice{Did: "charged", Units: units, Charged: charged}, err)
}

// grouped matches a number whose digits stand in groups of three.
var grouped = regexp.MustCompile(`^\d{1,3}([, _']\d{3})+$`)

// readUnits reads a number of units, and adds a mistake. The service says how many there may be.
func readUnits(m mistakes, text string) int64 {
	text = strings.TrimSpace(text)
	if grouped.MatchString(text) {
		text = strings.NewReplacer(",", "", " ", "", "_", "", "'", "").Replace(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		m.add("units", "it is not a whole number, such as 500")
	}
	return n
}

// readUntil reads the end of a grant, and adds mistakes.
func (r *request) readUntil(m mistakes) time.Time {
	read := mistakes{}
	until := readTime(read, r.field("until"), strings.TrimSpace(r.field("zone")))
	for _, text := range read["at"] {
		m.add("until", text)
	}
	for _, text := range read["zone"] {
		m.add("zone", text)
	}
	return until
}

// err returns the mistakes as an error.
func (m mistakes) err() error {
	var list []service.Fault
	for field, texts := range m {
		for _, text := range texts {
			list = append(list, service.Fault{Field: field, Message: text})
		}
	}
	return &service.InvalidError{Faults: list}
}

// notice is what was done to a key. It goes by a cookie to the page that says so, because no
// address and no log of a proxy is to have the key.
type notice struct {
	Did, Policy, Sent string
	Units, Charged    int64
	Until             int64 // in microseconds
}

// noticed has the next page say what was done, unless it failed.
func (r *request) noticed(k *keys, n notice, err error) (page, done string, _ error) {
	if err != nil {
		return "", "", err
	}
	n.Policy, n.Sent = k.Policy, k.Sent()
	text, err := json.Marshal(n)
	if err != nil {
		return "", "", err
	}
	r.setCookie(&http.Cookie{Name: r.noticeCookie(), Value: base64.RawURLEncoding.EncodeToString(text), MaxAge: 60})
	return keysPath(k.Policy), n.Did, nil
}

// noticeCookie returns the name of the cookie of a notice.
func (r *request) noticeCookie() string { return r.Cookie() + "-notice" }

// takeNotice shows the notice that came with the request once, and fills in its key.
func (r *request) takeNotice(k *keys) {
	c, err := r.req.Cookie(r.noticeCookie())
	if err != nil || r.req.Method != http.MethodGet {
		return
	}
	r.setCookie(&http.Cookie{Name: r.noticeCookie(), MaxAge: -1})

	var n notice
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || json.Unmarshal(text, &n) != nil {
		return
	}
	key, err := base64.RawURLEncoding.DecodeString(n.Sent)
	if err != nil || n.Policy != k.Policy || n.Did != r.query("done") {
		return
	}

	k.Notice = n.text(readable(string(key)), r.Clock())
	if readable(string(key)) == string(key) {
		k.Key = string(key)
	}
}

// text says what was done to the key.
func (n *notice) text(key string, now time.Time) string {
	switch n.Did {
	case "granted":
		until, layout := time.UnixMicro(n.Until).UTC(), "Mon 2 Jan 15:04 UTC"
		if until.Year() != now.UTC().Year() {
			layout = "Mon 2 Jan 2006 15:04 UTC"
		}
		return key + " has " + unitsText(n.Units) + " more under " + n.Policy + " until " + until.Format(layout) + "."
	case "taken":
		return key + " has no granted units under " + n.Policy + " any longer."
	case "charged":
		if n.Charged < n.Units {
			return key + " was charged " + digits(n.Charged) + " of " + unitsText(n.Units) + " under " + n.Policy +
				": its debt is full."
		}
		return key + " was charged " + unitsText(n.Units) + " under " + n.Policy + "."
	}
	return ""
}

func unitsText(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return digits(n) + " units"
}

func (k *keys) notice() string { return k.Notice }
