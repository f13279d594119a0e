package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/qrcode"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

const factorPath = "/account/second-factor"

// factor is the page of the user's second factor.
type factor struct {
	service.SecondFactor
	Must     bool // the user has to set one up first
	Mistakes mistakes
}

func factorPage(r *request) error { return r.showFactor(nil) }

func (r *request) showFactor(m mistakes) error {
	state, err := r.Service.SecondFactor(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	return r.show(statusOf(m), "secondfactor", "Second factor", factor{state, r.access.MustSetUpSecondFactor, m})
}

// factorSetup is the page that shows the secret of a second factor. It is an answer to a POST,
// which is not compressed, so that its length reveals nothing of the secret.
type factorSetup struct {
	Secret   string // in groups of four
	QR       qrcode.Code
	Must     bool
	Mistakes mistakes
}

func (r *request) showSetup(setup service.FactorSetup, m mistakes) error {
	code, err := qrcode.New(setup.Address)
	if err != nil {
		return err
	}

	var groups []string
	for remaining := setup.Secret; remaining != ""; {
		n := min(4, len(remaining))
		groups, remaining = append(groups, remaining[:n]), remaining[n:]
	}

	return r.show(statusOf(m), "factorsetup", "Set up a second factor",
		factorSetup{strings.Join(groups, " "), code, r.access.MustSetUpSecondFactor, m})
}

func beginFactor(r *request) error {
	setup, err := r.Service.BeginSecondFactor(r.req.Context(), r.actor, r.field("password"))
	return after(proofErr(err, "password", ""), r.showFactor, func() error { return r.showSetup(setup, nil) })
}

func confirmFactor(r *request) error {
	codes, err := r.Service.ConfirmSecondFactor(r.req.Context(), r.actor, r.field("code"))

	switch {
	case errors.Is(err, service.ErrCredentials):
		// The same secret is shown again: the device has it already, and only the code was wrong.
		setup, err := r.Service.SecondFactorSetup(r.req.Context(), r.actor)
		if err != nil {
			return err
		}
		return r.showSetup(setup,
			mistakes{"code": {"it is not the code of now; check that the clock of the device is right"}})
	case errors.Is(err, service.ErrNotFound):
		return r.seeOther(factorPath, "setup")
	case err != nil:
		return err
	}

	return r.showRecovery(codes)
}

// showRecovery shows new recovery codes, once.
func (r *request) showRecovery(codes []string) error {
	return r.show(http.StatusOK, "recovery", "Recovery codes", codes)
}

func renewRecovery(r *request) error {
	codes, err := r.Service.RenewRecoveryCodes(r.req.Context(), r.actor, r.field("password"), r.field("code"))
	return after(proofErr(err, "password", "renew"), r.showFactor, func() error { return r.showRecovery(codes) })
}

func disableFactor(r *request) error {
	err := r.Service.DisableSecondFactor(r.req.Context(), r.actor, r.field("password"), r.field("code"))
	return after(proofErr(err, "off", "code"), r.showFactor, r.to(factorPath, "factoroff"))
}

// proofErr returns the error of a form with fields for the user's password and a code: what is
// wrong with these is a mistake.
func proofErr(err error, password, code string) error {
	switch {
	case errors.Is(err, service.ErrCode):
		return mistake(code, "it is wrong, or was used before; wait for the next one")
	case errors.Is(err, service.ErrCredentials):
		return mistake(password, "it is not your password")
	}
	return err
}

// removeFactor removes the second factor of another user.
func removeFactor(r *request) error {
	name := r.req.PathValue("name")
	return r.changeUser("factor", nil,
		func() error { return r.Service.RemoveSecondFactor(r.req.Context(), r.actor, name) },
		r.to(userPath(name), "factorremoved"))
}
