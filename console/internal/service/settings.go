package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/console/internal/store"
)

// Settings are the settings of the console that administrators may change.
type Settings struct {
	// SessionIdle is how long a session lasts without use.
	SessionIdle time.Duration `json:"session_idle"`

	// SessionLife is how long a session lasts at most, however much it is used.
	SessionLife time.Duration `json:"session_life"`
}

// DefaultSettings are in force until others are saved.
var DefaultSettings = Settings{SessionIdle: time.Hour, SessionLife: 12 * time.Hour}

// These bound the settings. The last use of a session is stored to the precision of
// touchEvery, so minSession is longer.
const (
	minSession = 5 * time.Minute
	maxSession = 30 * 24 * time.Hour
)

// settingsName is the name of the row that holds the settings.
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

// settingsOf returns the settings in force.
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

// Settings returns the settings in force. It requires an administrator.
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

// SaveSettings puts settings in force, each of them from 5 minutes to 30 days.
// SessionIdle applies to existing sessions too, SessionLife to new ones only. It
// requires an administrator.
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
