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
func (r *request) complete(l *later, p policy.Policy) (err error) {
	l.CanEdit = r.access.CanEdit(p.Apps)
	l.Waiting, l.Failed, err = r.Service.ScheduledOf(r.req.Context(), r.actor, p.Name)
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
func scheduleMode(r *request) error {
	p, err := r.Service.Policy(r.req.Context(), r.actor, r.req.PathValue("name"))
	if err != nil {
		return err
	}

	l, mine, m := laterOf(p), p, mistakes{}
	mine.Version = r.version("version")

	// The form is read now. act makes the change, once the user has been asked.
	var act func() error
	var when, done string
	if r.field("do") == "for" {
		act, done = r.scheduleFor(&l, &mine, m), "until"
		when = "now, for " + l.span() + ","
	} else {
		act, done = r.scheduleAt(&l, &mine, m), "scheduled"
		when = l.At + " (" + l.Zone + ")"
	}

	if len(m) == 0 && mine.Mode == policy.Off && r.access.CanEdit(p.Apps) && !r.confirmed() {
		return r.confirmOff(p, when, policyPath(p.Name)+"/schedule", r.sent())
	}

	if len(m) == 0 {
		err = act()
		m = mistakesOf(err)
	}

	if len(m) > 0 {
		l.Mistakes = m
		return r.showPolicy(http.StatusUnprocessableEntity, p, l, beside{})
	}
	if err != nil {
		return r.conflictOr(err)
	}
	return r.seeOther(policyPath(p.Name), done)
}

// scheduleAt reads the form of a change at a time, and returns what makes it.
func (r *request) scheduleAt(l *later, mine *policy.Policy, m mistakes) func() error {
	l.Mode, l.At, l.Zone = r.field("mode"), r.field("at"), strings.TrimSpace(r.field("zone"))
	if err := mine.Mode.UnmarshalText([]byte(l.Mode)); err != nil || l.Mode == "" {
		m.add("mode", "choose one of them")
	}

	at := readTime(m, l.At, l.Zone)
	return func() error {
		_, err := r.Service.Schedule(r.req.Context(), r.saying(), *mine, at)
		return err
	}
}

// scheduleFor reads the form of a change for a time, and returns what makes it.
func (r *request) scheduleFor(l *later, mine *policy.Policy, m mistakes) func() error {
	l.ForMode, l.For, l.Unit = r.field("mode"), r.field("for"), r.field("unit")
	if err := mine.Mode.UnmarshalText([]byte(l.ForMode)); err != nil || l.ForMode == "" {
		m.add("for_mode", "choose one of them")
	}

	n, err := strconv.ParseInt(l.For, 10, 32)
	unit, known := spans[l.Unit]
	if err != nil || !known || n <= 0 || n > int64(service.MaxAhead/unit) {
		m.add("for", "write a whole number above 0, of at most a year")
	}

	return func() error {
		_, _, err := r.Service.ChangeFor(r.req.Context(), r.saying(), *mine, time.Duration(n)*unit)
		return err
	}
}

// scheduleEdit has a policy changed to what the form of an edit holds at a time.
func (r *request) scheduleEdit(d draft, p policy.Policy) error {
	m := mistakes{}
	at := readTime(m, r.field("at"), strings.TrimSpace(r.field("zone")))
	if len(m) > 0 {
		return r.reshow(d, m, false, http.StatusUnprocessableEntity)
	}

	if _, err := r.Service.Schedule(r.req.Context(), r.saying(), p, at); err != nil {
		return r.showRefusal(err, d, false)
	}
	return r.seeOther(policyPath(p.Name), "scheduled")
}

// scheduledList is a page of the changes that wait.
type scheduledList struct {
	List []service.Scheduled
	paging
}

func scheduledPage(r *request) error {
	list, err := r.Service.Coming(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	c := scheduledList{}
	c.List, c.paging = pageOf(r, list)
	return r.show(http.StatusOK, "scheduled", "Scheduled changes", c)
}

// cancelScheduled cancels a change that waits, and returns to the page with the form.
func cancelScheduled(r *request) error {
	c, err := r.Service.CancelScheduled(r.req.Context(), r.actor, r.field("id"))
	if err != nil {
		return err
	}

	if r.field("back") == "policy" {
		_, err := r.Service.Policy(r.req.Context(), r.actor, c.Policy)
		if err == nil {
			return r.seeOther(policyPath(c.Policy), "canceled")
		}

		// The policy may have been deleted since. Its page is not there then, and the list of
		// changes is.
		if !errors.Is(err, service.ErrNotFound) {
			return err
		}
	}

	return r.seeOther("/scheduled", "canceled")
}
