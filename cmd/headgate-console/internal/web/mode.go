package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// modeMenu is the menu of a policy's mode, with what the user chose in it.
type modeMenu struct {
	Name     string
	Version  int64
	Now      policy.Mode
	CanEdit  bool
	Pause    *service.Pause
	Choices  []choice // with what each does
	Mode     string   // that is chosen
	For      string   // for how many hours, or "" to stay
	Mistakes mistakes
}

// Paused reports whether the policy goes back by itself.
func (m *modeMenu) Paused() bool { return m.Pause != nil && m.Pause.Reason == "" }

// complete adds what the page of a policy has.
func (m *modeMenu) complete(r *request, p policy.Policy) (err error) {
	m.Name, m.Version, m.Now, m.CanEdit = p.Name, p.Version, p.Mode, r.access.CanEdit(p.Apps)
	if m.Mode == "" {
		m.Mode = p.Mode.String()
	}
	if m.Pause, err = r.Service.PauseOf(r.req.Context(), r.actor, p.Name); err != nil || !m.CanEdit {
		return err
	}

	into, out, err := r.counted(p)
	for _, c := range modes() {
		if told := map[bool]string{true: into, false: out}[c.Value == "enforce"]; told != "" {
			c.Help += " " + told
		}
		m.Choices = append(m.Choices, c)
	}
	return err
}

// counted says what the counts tell about a policy that comes into force, and about one that is
// taken out of it. What they do not tell is "".
func (r *request) counted(p policy.Policy) (into, out string, err error) {
	switch p.Mode {
	case policy.Shadow:
		p.Mode = policy.Enforce
		w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, p)
		if err != nil || w == nil || w.Unknown != "" {
			return "", "", err
		}
		return w.Sentence(), "", nil
	case policy.Enforce:
		f, err := r.decided(p.Name, time.Hour)
		if err != nil || f.All == 0 {
			return "", "", err
		}
		return "", fmt.Sprintf("In the last hour it refused %s of %s.", digits(f.Of("refused")),
			plural(f.All, "request", "requests")), nil
	}
	return "", "", nil
}

// setMode changes only the mode: to stay, or for some hours. It asks for a confirmation before it
// turns a policy off.
func setMode(r *request) error {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.update", r.req.PathValue("name"))
	if err != nil {
		return err
	}
	menu, mode, hours := r.readMode()
	if len(menu.Mistakes) > 0 {
		return r.showPolicy(http.StatusUnprocessableEntity, p, menu, beside{})
	}

	// The version of the page is sent along, so that a change by another user in between is a
	// conflict.
	mine := p
	mine.Mode, mine.Version = mode, r.version("version")
	if mode == policy.Off && p.Mode != policy.Off && !r.confirmed() {
		when := "now on"
		if hours > 0 {
			when = fmt.Sprintf("now, for %s,", plural(hours, "hour", "hours"))
		}
		return r.confirmOff(p, when)
	}
	if asked, err := r.confirmMore(mine); asked || err != nil {
		return err
	}

	done := "mode"
	if hours > 0 {
		done = "until"
		_, err = r.Service.PausePolicy(r.req.Context(), r.saying(), p.Name, mine.Version, mode,
			time.Duration(hours)*time.Hour)
	} else {
		_, err = r.Service.UpdatePolicy(r.req.Context(), r.saying(), mine)
	}
	if menu.Mistakes = mistakesOf(err); menu.Mistakes != nil {
		return r.showPolicy(http.StatusUnprocessableEntity, p, menu, beside{})
	}
	if err != nil {
		return err
	}
	return r.seeOther(policyPath(p.Name), done)
}

// maxHours is the longest pause.
const maxHours = int64(service.MaxPause / time.Hour)

// readMode reads the form of the mode; hours is 0 for one that stays. All of its mistakes are shown
// at once, beside its fields.
func (r *request) readMode() (m modeMenu, mode policy.Mode, hours int64) {
	m = modeMenu{Mode: r.field("mode"), For: r.field("for"), Mistakes: mistakes{}}
	if err := mode.UnmarshalText([]byte(m.Mode)); err != nil || m.Mode == "" {
		m.Mistakes.add("mode", "choose one of them")
	}
	if m.For == "" {
		return m, mode, 0
	}

	hours, err := strconv.ParseInt(m.For, 10, 64)
	switch {
	case err != nil || hours < 1 || hours > maxHours:
		m.Mistakes.add("for", fmt.Sprintf("write a whole number of hours from 1 to %d", maxHours))
	case mode == policy.Enforce:
		m.Mistakes.add("for", "only a policy in shadow or off goes back by itself; leave it empty")
	}
	return m, mode, hours
}

// stay lets a policy stay as it is, and not go back by itself.
func stay(r *request) error {
	name := r.req.PathValue("name")
	return after(r.Service.CancelPause(r.req.Context(), r.actor, name), nil, r.to(policyPath(name), "stays"))
}

// watched is what a policy in shadow has seen, with the button that enforces it.
type watched struct {
	Name    string
	Since   time.Time
	Begins  bool // counting begins later, at Since
	Seen    int64
	Over    int64 // of them, over the limit
	OnLimit string
	Counted bool // there is a Redis

	CanEdit bool
	Version int64 // of the page, which the button enforces
	Stale   bool  // there is a newer version
}

// Share says which part of the requests was over the limit.
func (w watched) Share() string { return share(w.Over, w.Seen) }

// watched returns what a policy has seen, or nil if it is not in shadow. shown is the version of
// the page.
func (r *request) watched(p policy.Policy, shown int64) (*watched, error) {
	if p.Mode != policy.Shadow {
		return nil, nil
	}

	seen, err := r.Service.SeenInShadow(r.req.Context(), r.actor, p.Name)
	if err != nil || seen.Since.IsZero() { // it was changed since
		return nil, err
	}

	return &watched{
		Name: p.Name, Since: seen.Since, Begins: seen.Since.After(r.Clock()), Seen: seen.Counts.Total(),
		Over: seen.Over(), OnLimit: p.OnLimit, Counted: r.Fleet != nil,
		CanEdit: r.access.CanEdit(p.Apps), Version: shown, Stale: shown != p.Version,
	}, nil
}
