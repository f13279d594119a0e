package web

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// later is the part of a policy's page with the changes that wait, and the forms for further ones,
// as the user typed them.
type later struct {
	Name    string
	Version int64
	Modes   []choice
	CanEdit bool
	Waiting []service.Scheduled
	Failed  []service.Scheduled
	Mode    string // of the change at a time
	ForMode string // of the change for a time
	For     string
	Unit    string

	moment
}

// moment are the fields of a time with its zone, as the user typed them.
type moment struct {
	At, Zone string
	Mistakes mistakes
}

// Zones are proposals for the zone.
func (moment) Zones() []string {
	return []string{"UTC", "Europe/London", "Europe/Berlin", "America/New_York", "America/Los_Angeles",
		"Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney"}
}

// Typed reports whether there is something to show.
func (m moment) Typed() bool { return m.At != "" || len(m.Mistakes["at"])+len(m.Mistakes["zone"]) > 0 }

// spans are the units of a change for a time.
var spans = map[string]time.Duration{"minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour}

// laterOf returns the forms before anything was typed.
func laterOf(p policy.Policy) later {
	l := later{
		Name: p.Name, Version: p.Version, Modes: modes(), Mode: "enforce", ForMode: "off", For: "2",
		Unit: "hours", moment: moment{Zone: "UTC"},
	}
	if p.Mode == policy.Enforce {
		l.Mode = "off"
	}
	return l
}

// complete adds what waits.
func (v *request) complete(l *later, p policy.Policy) (err error) {
	l.CanEdit = v.access.CanEdit(p.Apps)
	l.Waiting, l.Failed, err = v.Service.ScheduledOf(v.r.Context(), v.actor, p.Name)
	return err
}

// Units are the units of a change for a time.
func (l later) Units() []string { return []string{"minutes", "hours", "days"} }

// span returns the time of a change for a time, in words.
func (l later) span() string {
	if l.For == "1" {
		return "1 " + strings.TrimSuffix(l.Unit, "s")
	}
	return l.For + " " + l.Unit
}

// readTime reads a time of a form with its zone, and adds mistakes.
func readTime(m mistakes, text, zone string) time.Time {
	where, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		m.add("zone", "it is not the name of a time zone, such as UTC or Europe/Berlin")
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		t, err := time.ParseInLocation(layout, text, where)
		if err != nil {
			continue
		}

		// Twice a year a clock skips an hour, or shows one twice. Go picks an instant in both
		// cases, and the user has to say which one is meant.
		switch {
		case t.Format(layout) != text:
			m.add("at", "the clocks of this time zone skip this time; choose another")
		case t.Add(time.Hour).Format(layout) == text || t.Add(-time.Hour).Format(layout) == text:
			m.add("at", "the clocks of this time zone show this time twice; give it in UTC")
		}
		return t
	}

	m.add("at", "it is not a date and a time, such as 2030-01-31T09:00")
	return time.Time{}
}

// scheduleMode has the mode of a policy changed at a time, or for a time.
func scheduleMode(v *request) error {
	p, err := v.Service.Policy(v.r.Context(), v.actor, v.r.PathValue("name"))
	if err != nil {
		return err
	}

	l, mine, m := laterOf(p), p, mistakes{}
	mine.Version = v.version("version")

	// The form is read now. act makes the change, once the user has been asked.
	var act func() error
	var when, done string
	if v.field("do") == "for" {
		act, done = v.scheduleFor(&l, &mine, m), "until"
		when = "now, for " + l.span() + ","
	} else {
		act, done = v.scheduleAt(&l, &mine, m), "scheduled"
		when = l.At + " (" + l.Zone + ")"
	}

	if len(m) == 0 && mine.Mode == policy.Off && v.access.CanEdit(p.Apps) && !v.confirmed() {
		return v.confirmOff(p, when, policyPath(p.Name)+"/schedule", v.sent())
	}

	if len(m) == 0 {
		err = act()
		m = mistakesOf(err)
	}

	if len(m) > 0 {
		l.Mistakes = m
		return v.showPolicy(http.StatusUnprocessableEntity, p, l)
	}
	if err != nil {
		return v.conflictOr(err)
	}
	return v.seeOther(policyPath(p.Name), done)
}

// scheduleAt reads the form of a change at a time, and returns what makes it.
func (v *request) scheduleAt(l *later, mine *policy.Policy, m mistakes) func() error {
	l.Mode, l.At, l.Zone = v.field("mode"), v.field("at"), strings.TrimSpace(v.field("zone"))
	if err := mine.Mode.UnmarshalText([]byte(l.Mode)); err != nil || l.Mode == "" {
		m.add("mode", "choose one of them")
	}

	at := readTime(m, l.At, l.Zone)
	return func() error {
		_, err := v.Service.Schedule(v.r.Context(), v.saying(), *mine, at)
		return err
	}
}

// scheduleFor reads the form of a change for a time, and returns what makes it.
func (v *request) scheduleFor(l *later, mine *policy.Policy, m mistakes) func() error {
	l.ForMode, l.For, l.Unit = v.field("mode"), v.field("for"), v.field("unit")
	if err := mine.Mode.UnmarshalText([]byte(l.ForMode)); err != nil || l.ForMode == "" {
		m.add("for_mode", "choose one of them")
	}

	n, err := strconv.ParseInt(l.For, 10, 32)
	unit, known := spans[l.Unit]
	if err != nil || !known || n <= 0 || n > int64(service.MaxAhead/unit) {
		m.add("for", "write a whole number above 0, of at most a year")
	}

	return func() error {
		_, _, err := v.Service.ChangeFor(v.r.Context(), v.saying(), *mine, time.Duration(n)*unit)
		return err
	}
}

// scheduleEdit has a policy changed to what the form of an edit holds at a time.
func (v *request) scheduleEdit(d draft, p policy.Policy) error {
	m := mistakes{}
	at := readTime(m, v.field("at"), strings.TrimSpace(v.field("zone")))
	if len(m) > 0 {
		return v.reshow(d, m, false, http.StatusUnprocessableEntity)
	}

	if _, err := v.Service.Schedule(v.r.Context(), v.saying(), p, at); err != nil {
		return v.refused(err, d, false)
	}
	return v.seeOther(policyPath(p.Name), "scheduled")
}

// scheduledList is a page of the changes that wait.
type scheduledList struct {
	List []service.Scheduled
	paging
}

func scheduledPage(v *request) error {
	list, err := v.Service.Coming(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	c := scheduledList{}
	c.List, c.paging = pageOf(v, list)
	return v.show(http.StatusOK, "scheduled", "Scheduled changes", c)
}

// cancelScheduled cancels a change that waits, and returns to the page with the form.
func cancelScheduled(v *request) error {
	c, err := v.Service.CancelScheduled(v.r.Context(), v.actor, v.field("id"))
	if err != nil {
		return err
	}

	if v.field("back") == "policy" {
		_, err := v.Service.Policy(v.r.Context(), v.actor, c.Policy)
		if err == nil {
			return v.seeOther(policyPath(c.Policy), "canceled")
		}

		// The policy may have been deleted since. Its page is not there then, and the list of
		// changes is.
		if !errors.Is(err, service.ErrNotFound) {
			return err
		}
	}

	return v.seeOther("/scheduled", "canceled")
}
