package web

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/server"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/textform"
)

// settings is the page of the settings that administrators may change.
type settings struct {
	Idle, Life string
	Factor     string // who has to have a second factor
	Days       string // of a token
	Own        service.SecondFactor
	Mistakes   mistakes
}

func settingsPage(r *request) error { return r.showSettings(nil) }

// showSettings shows the settings as they are, with mistakes of another form on the page.
func (r *request) showSettings(m mistakes) error {
	s, err := r.Service.Settings(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	return r.showSettingsForm(settings{
		Idle: textform.Duration(s.SessionIdle), Life: textform.Duration(s.SessionLife), Factor: string(s.SecondFactor),
		Days: strconv.Itoa(int(s.TokenLife / (24 * time.Hour))), Mistakes: m,
	})
}

func (r *request) showSettingsForm(form settings) (err error) {
	// The form of a backup asks for a code where there is a second factor.
	if form.Own, err = r.Service.SecondFactor(r.req.Context(), r.actor); err != nil {
		return err
	}
	return r.show(statusOf(form.Mistakes), "settings", "Sign-in and backup", form)
}

func saveSettings(r *request) error {
	form := settings{
		Idle: strings.TrimSpace(r.field("idle")), Life: strings.TrimSpace(r.field("life")), Factor: r.field("factor"),
		Days: strings.TrimSpace(r.field("days")), Mistakes: mistakes{},
	}

	s := service.Settings{
		SessionIdle: form.span("idle", form.Idle), SessionLife: form.span("life", form.Life),
		SecondFactor: service.Requirement(form.Factor), TokenLife: form.days(),
	}

	// What cannot be read is not sent to the service, which would take it for a zero.
	if len(form.Mistakes) > 0 {
		return r.showSettingsForm(form)
	}

	err := r.Service.SaveSettings(r.req.Context(), r.actor, s)
	again := func(m mistakes) error {
		form.Mistakes = m.renamed("session_idle", "idle").renamed("session_life", "life").
			renamed("second_factor", "factor").renamed("token_life", "days")
		return r.showSettingsForm(form)
	}
	return after(err, again, r.to("/settings", "settings"))
}

// days returns the longest life of a token; 0, for an empty field, keeps what is in force.
func (s *settings) days() time.Duration {
	if s.Days == "" {
		return 0
	}
	n, err := strconv.ParseUint(s.Days, 10, 15)
	if err != nil || n == 0 {
		s.Mistakes.add("days", "it is not a whole number of days")
	}
	return time.Duration(n) * 24 * time.Hour
}

func (s *settings) span(field, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Mistakes.add(field, "it is not a time such as 30m or 12h")
	}
	return d
}

// downloadBackup sends a backup of the database. It is an answer to a form, so that no page of
// another site asks for it.
func downloadBackup(r *request) error {
	f, err := r.Service.Backup(r.req.Context(), r.actor, r.field("password"), r.field("code"))
	return after(proofErr(err, "password", "code"), r.showSettings, func() error {
		defer f.Close()
		return server.SendBackup(r.w, f.File, r.Clock())
	})
}
