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

// askGrant asks for the units that a key gets, and until when.
func askGrant(r *request, k *target) confirmation {
	zone := r.field("zone")
	if zone == "" {
		zone = "UTC"
	}
	c := confirmationOf("grant", k.Policy)
	c.Inputs = []input{
		{"units", "Units", r.field("units"), "a whole number, such as 10,000", ""},
		{"until", "Until", r.field("until"), "by the clock of the time zone, within ten years", "datetime-local"},
		{"zone", "Time zone", zone, "such as UTC or Europe/Berlin", ""},
	}
	return c
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
	c := confirmationOf("debit", k.Policy)
	c.Inputs = []input{{"units", "Units", r.field("units"), "a whole number, such as 20; " + l.String() +
		" and its debt hold " + digits(l.Capacity()+l.MaxDebt()), ""}}
	return c
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
