package api

import "net/http"

// me answers with the actor and its permissions. It also works for an actor who
// must change the password or set up a second factor first.
func (c *call) me() error {
	a, err := c.o.Service.Access(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, struct {
		User               string `json:"user"`
		Administrator      bool   `json:"administrator"`
		MayManage          bool   `json:"may_manage"`
		MustChangePassword bool   `json:"must_change_password"`
		MustSetUp          bool   `json:"must_set_up_second_factor"`
		Token              bool   `json:"token"`
		ReadOnly           bool   `json:"read_only"`
	}{a.User, a.Administrator, a.CanManage(), a.MustChangePassword, a.MustSetUpSecondFactor, a.Token, a.ReadOnly})
}
