package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// pausing is the part of a policy's page with its pause, or the form for one as the user typed it.
type pausing struct {
	Name     string
	Version  int64
	Now      policy.Mode
	CanEdit  bool
	Pause    *service.Pause
	Modes    []choice
	Mode     string // of the form
	For      string // hours
	Mistakes mistakes
}

// complete adds what the page of a policy has.
func (p *pausing) complete(r *request, of policy.Policy) (err error) {
	p.Name, p.Version, p.Now, p.CanEdit = of.Name, of.Version, of.Mode, r.access.CanEdit(of.Apps)
	// Before anything was typed the form proposes two hours.
	if p.Mode+p.For == "" {
		p.For = "2"
	}

	for _, m := range modes() {
		if m.Value != "enforce" && m.Value != of.Mode.String() {
			p.Modes = append(p.Modes, m)
		}
	}
	p.Pause, err = r.Service.PauseOf(r.req.Context(), r.actor, of.Name)
	return err
}

// maxHours is the longest pause.
const maxHours = int64(service.MaxPause / time.Hour)

// pausePolicy switches a policy to shadow or off for some hours, or lets it stay as it is.
func pausePolicy(r *request) error {
	name := r.req.PathValue("name")
	if r.field("do") == "stay" {
		return after(r.Service.CancelPause(r.req.Context(), r.actor, name), nil, r.to(policyPath(name), "stays"))
	}

	p, err := r.Service.Policy(r.req.Context(), r.actor, name)
	if err != nil {
		return err
	}

	form, mode, hours := r.pauseForm()
	m := form.Mistakes

	// Shadow needs no question: the policy counts on, and goes back by itself.
	if len(m) == 0 && mode == policy.Off && p.Mode != policy.Off && !r.confirmed() && r.access.CanEdit(p.Apps) {
		when := fmt.Sprintf("now, for %s,", plural(hours, "hour", "hours"))
		return r.confirmOff(p, when, policyPath(name)+"/pause", r.sent())
	}

	// The service may know more mistakes. Its field of the mode has another name on the page, where
	// a menu of the mode stands beside.
	if len(m) == 0 {
		_, err = r.Service.PausePolicy(r.req.Context(), r.saying(), name, r.version("version"), mode,
			time.Duration(hours)*time.Hour)
		m = mistakesOf(err).renamed("mode", "pause_mode")
	}
	if len(m) > 0 {
		form.Mistakes = m
		return r.showPolicy(http.StatusUnprocessableEntity, p, form, beside{})
	}
	if err != nil {
		return r.conflictOr(err)
	}
	return r.seeOther(policyPath(name), "until")
}

// pauseForm reads the form of a pause. All of its mistakes are shown at once, beside its fields.
func (r *request) pauseForm() (form pausing, mode policy.Mode, hours int64) {
	form = pausing{Mode: r.field("mode"), For: r.field("for"), Mistakes: mistakes{}}
	if err := mode.UnmarshalText([]byte(form.Mode)); err != nil || form.Mode == "" {
		form.Mistakes.add("pause_mode", "choose one of them")
	}
	hours, err := strconv.ParseInt(form.For, 10, 64)
	if err != nil || hours < 1 || hours > maxHours {
		form.Mistakes.add("for", fmt.Sprintf("write a whole number of hours from 1 to %d", maxHours))
	}
	return form, mode, hours
}
