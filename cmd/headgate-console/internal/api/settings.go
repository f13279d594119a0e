package api

import (
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// settingsView holds the settings, with times in seconds.
type settingsView struct {
	SessionIdle  int64  `json:"session_idle"`
	SessionLife  int64  `json:"session_life"`
	SecondFactor string `json:"second_factor"`
	TokenLife    int64  `json:"token_life"`
}

func (c *call) readSettings() error {
	s, err := c.o.Service.Settings(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(settingsView{
		int64(s.SessionIdle / time.Second), int64(s.SessionLife / time.Second), string(s.SecondFactor),
		int64(s.TokenLife / time.Second),
	}, "")
}

func (c *call) saveSettings() error {
	var in settingsView
	if err := c.decode(&in); err != nil {
		return err
	}
	s := service.Settings{
		SessionIdle: duration(in.SessionIdle), SessionLife: duration(in.SessionLife),
		SecondFactor: service.Requirement(in.SecondFactor), TokenLife: duration(in.TokenLife),
	}
	if err := c.o.Service.SaveSettings(c.ctx(), c.actor, s); err != nil {
		return err
	}
	return c.readSettings()
}

// duration converts seconds. It caps values beyond those of any setting, so that
// they cannot overflow.
func duration(seconds int64) time.Duration {
	const century = 100 * 366 * 24 * 3600
	return time.Duration(min(max(seconds, -1), century)) * time.Second
}
