package web

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// CanGrant reports whether the actor may give the key units, or take them away.
func (t *target) CanGrant() bool {
	return t.CanEdit && !t.Found.LimitOf(t.Counted, time.Now()).Leased()
}

// CanDebit reports whether the actor may charge the key units beyond its limit.
func (t *target) CanDebit() bool {
	return t.CanEdit && service.CheckDebit(*t.Found, t.Counted, 1, time.Now()) == nil
}

// beforeCredit is what docs/upgrades.md says of instances that know no credit.
const beforeCredit = "An instance of a version from before credit cannot read a key that has some: it decides about " +
	"the key as while Redis is away, until the last grant of the key has ended. Grant nothing until all instances " +
	"know credit."

// askGrant asks for the units that a key gets, and until when.
func askGrant(r *request, k *target) confirmation {
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

func (r *request) doGrant(k *target) (done string, err error) {
	m := mistakes{}
	units := readUnits(m, r.field("units"))
	until := readTime(m, "until", r.field("until"), strings.TrimSpace(r.field("zone")))
	if len(m) > 0 && k.CanEdit {
		return "", m.err()
	}

	err = r.Service.GrantKey(r.req.Context(), r.actor, k.Policy, k.Counted, units, until,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := r.Fleet.Grant(ctx, p, key, units, until)
			return d, fleetErr(err)
		})
	return "granted", err
}

// askDebit asks for the units that a key is charged.
func askDebit(r *request, k *target) confirmation {
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

func (r *request) doDebit(k *target) (done string, err error) {
	m := mistakes{}
	units := readUnits(m, r.field("units"))
	if len(m) > 0 && k.CanEdit {
		return "", m.err()
	}

	charged, err := r.Service.DebitKey(r.req.Context(), r.actor, k.Policy, k.Counted, units,
		func(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
			d, err := r.Fleet.Debit(ctx, p, key, units)
			return d, fleetErr(err)
		})
	if charged < units {
		return "partly", err
	}
	return "charged", err
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
