package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/console/internal/store"
)

// Settings are what administrators may change of the console itself.
type Settings struct {
	// SessionIdle ends a session that was not used for so long.
	SessionIdle time.Duration `json:"session_idle"`

	// SessionLife ends a session whatever happens.
	SessionLife time.Duration `json:"session_life"`
}

// DefaultSettings hold until others are saved.
var DefaultSettings = Settings{SessionIdle: time.Hour, SessionLife: 12 * time.Hour}

// Bounds of the settings. A session outlives touchEvery, to which its use is known.
const (
	minSession = 5 * time.Minute
	maxSession = 30 * 24 * time.Hour
)

// settingsName is the row that holds them.
const settingsName = "settings"

func (s Settings) check() error {
	var f faults
	for _, b := range []struct {
		field string
		value time.Duration
	}{{"session_idle", s.SessionIdle}, {"session_life", s.SessionLife}} {
		if b.value < minSession || b.value > maxSession {
			f.note(b.field, fmt.Errorf("%s is not within %s to %s", b.value, minSession, maxSession))
		}
	}
	return f.err()
}

// settingsOf returns those that are in force.
func settingsOf(t *store.Tx) (Settings, error) {
	value, err := t.Setting(settingsName)
	if errors.Is(err, store.ErrNotFound) {
		return DefaultSettings, nil
	}
	if err != nil {
		return Settings{}, err
	}
	s := DefaultSettings
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return Settings{}, fmt.Errorf("row of the settings: %w", err)
	}
	return s, nil
}

// Settings returns those that are in force, to administrators.
func (s *Service) Settings(ctx context.Context, a Actor) (v Settings, err error) {
	err = s.ask(ctx, a, "settings.read", settingsName, func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		v, err = settingsOf(d.Tx)
		return err
	})
	return v, err
}

// SaveSettings puts settings in force, also for the sessions that there are, except
// that SessionLife is for new ones. It takes an administrator.
func (s *Service) SaveSettings(ctx context.Context, a Actor, v Settings) error {
	return s.act(ctx, a, store.CounterUsers, "settings.update", settingsName, func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		if err := v.check(); err != nil {
			return err
		}
		was, err := settingsOf(d.Tx)
		if err != nil {
			return err
		}
		if was == v {
			return errUnchanged
		}
		if err := d.SetSetting(settingsName, text(v)); err != nil {
			return err
		}
		return d.done(text(was), text(v))
	})
}
