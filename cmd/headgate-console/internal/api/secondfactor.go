package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// factorView is the state of the actor's own second factor.
type factorView struct {
	On            bool      `json:"on"`
	Since         time.Time `json:"since,omitzero"`
	RecoveryCodes int       `json:"recovery_codes"`
	Required      bool      `json:"required"`
	Elsewhere     bool      `json:"elsewhere"`
}

func (c *call) secondFactor() error {
	f, err := c.o.Service.SecondFactor(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(factorView(f), "")
}

// proofBody is the body of a change that takes the actor's own password and a code of the second
// factor.
type proofBody struct {
	Password string `json:"password"`
	Code     string `json:"code"`
}

// wrong returns the mistake of a field that holds a wrong password or code.
func wrong(err error, field string) error {
	if errors.Is(err, service.ErrCredentials) {
		return invalid(fault{Field: field, Message: "it is wrong"})
	}
	return err
}

// wrongProof returns the mistake of the field of a proofBody that is wrong.
func wrongProof(err error) error {
	if errors.Is(err, service.ErrCode) {
		return wrong(err, "code")
	}
	return wrong(err, "password")
}

// beginSecondFactor answers with the secret, which no later answer contains.
func (c *call) beginSecondFactor() error {
	var in struct {
		Password string `json:"password"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	setup, err := c.o.Service.BeginSecondFactor(c.ctx(), c.actor, in.Password)
	if err != nil {
		return wrong(err, "password")
	}
	return c.send(http.StatusCreated, struct {
		Secret  string `json:"secret"`
		Address string `json:"address"`
	}{setup.Secret, setup.Address})
}

func (c *call) confirmSecondFactor() error {
	var in struct {
		Code string `json:"code"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	codes, err := c.o.Service.ConfirmSecondFactor(c.ctx(), c.actor, in.Code)
	if err != nil {
		return wrong(err, "code")
	}
	return c.recoveryCodes(codes)
}

func (c *call) renewRecoveryCodes() error {
	var in proofBody
	if err := c.decode(&in); err != nil {
		return err
	}
	codes, err := c.o.Service.RenewRecoveryCodes(c.ctx(), c.actor, in.Password, in.Code)
	if err != nil {
		return wrongProof(err)
	}
	return c.recoveryCodes(codes)
}

// recoveryCodes answers with new recovery codes, which no later answer contains.
func (c *call) recoveryCodes(codes []string) error {
	return c.send(http.StatusOK, struct {
		Codes []string `json:"recovery_codes"`
	}{codes})
}

func (c *call) disableSecondFactor() error {
	var in proofBody
	if err := c.decode(&in); err != nil {
		return err
	}
	return c.nothing(wrongProof(c.o.Service.DisableSecondFactor(c.ctx(), c.actor, in.Password, in.Code)))
}

func (c *call) removeSecondFactor() error { return c.changeUser(c.o.Service.RemoveSecondFactor) }
