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

// passwordBody is the body of a change that takes the actor's own password.
type passwordBody struct {
	Password string `json:"password"`
}

// password reads the password of a change.
func (c *call) password() (string, error) {
	var in passwordBody
	err := c.decode(&in)
	return in.Password, err
}

// wrong returns the mistake of a field that holds a wrong password or code.
func wrong(err error, field string) error {
	if errors.Is(err, service.ErrCredentials) {
		return invalid(fault{Field: field, Message: "it is wrong"})
	}
	return err
}

// beginSecondFactor answers with the secret, which no later answer contains.
func (c *call) beginSecondFactor() error {
	password, err := c.password()
	if err != nil {
		return err
	}
	setup, err := c.o.Service.BeginSecondFactor(c.ctx(), c.actor, password)
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
	password, err := c.password()
	if err != nil {
		return err
	}
	codes, err := c.o.Service.RenewRecoveryCodes(c.ctx(), c.actor, password)
	if err != nil {
		return wrong(err, "password")
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
	var in struct {
		Password string `json:"password"`
		Code     string `json:"code"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	err := c.o.Service.DisableSecondFactor(c.ctx(), c.actor, in.Password, in.Code)
	if errors.Is(err, service.ErrCode) {
		return wrong(err, "code")
	}
	return c.nothing(wrong(err, "password"))
}

func (c *call) removeSecondFactor() error { return c.changeUser(c.o.Service.RemoveSecondFactor) }
