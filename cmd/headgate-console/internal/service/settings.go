package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// Settings are the settings of the console that administrators may change.
type Settings struct {
	// SessionIdle is how long a session lasts without use.
	SessionIdle time.Duration `json:"session_idle"`

	// SessionLife is how long a session lasts at most, however much it is used.
	SessionLife time.Duration `json:"session_life"`

	// SecondFactor says who has to have a second factor. It does not apply to users whom a
	// provider or a proxy signs in, nor to tokens.
	SecondFactor Requirement `json:"second_factor"`

	// TokenLife is the longest life of a new API token.
	TokenLife time.Duration `json:"token_life"`
}

// Requirement says who has to have a second factor.
type Requirement string

// The requirements.
const (
	ForNobody         Requirement = "nobody"
	ForAdministrators Requirement = "administrators"
	ForEveryone       Requirement = "everyone"
)

// requires reports whether a user has to have a second factor.
func (s Settings) requires(a Access) bool {
	return s.SecondFactor == ForEveryone || s.SecondFactor == ForAdministrators && a.Administrator
}

// ended reports whether a session has ended at an instant in µs.
func (s Settings) ended(r store.Session, now int64) bool {
	return now >= r.ExpiresAt || now >= r.SeenAt+s.SessionIdle.Microseconds()
}

// DefaultSettings are in force until others are saved.
var DefaultSettings = Settings{
	SessionIdle: time.Hour, SessionLife: 12 * time.Hour, SecondFactor: ForNobody, TokenLife: MaxTokenLife,
}

// These bound the settings. The last use of a session is stored to the precision of
// touchEvery, so minSession is longer.
const (
	minSession = 5 * time.Minute
	maxSession = 30 * 24 * time.Hour

	minTokenLife = 24 * time.Hour
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
			f.add(b.field, fmt.Errorf("%s is not within %s to %s", b.value, minSession, maxSession))
		}
	}

	if s.SecondFactor != ForNobody && s.SecondFactor != ForAdministrators && s.SecondFactor != ForEveryone {
		f.add("second_factor", errors.New("it is not nobody, administrators or everyone"))
	}

	if s.TokenLife < minTokenLife || s.TokenLife > MaxTokenLife {
		f.add("token_life", fmt.Errorf("it is not within 1 to %d days", MaxTokenLife/minTokenLife))
	}

	return f.err()
}

// settingsOf returns the settings in force.
func settingsOf(t *store.Tx) (Settings, error) {
	s := DefaultSettings
	value, err := settingOf(t, settingsName)
	if err != nil || value == "" {
		return s, err
	}
	if err := json.Unmarshal([]byte(value), &s); err != nil {
		return Settings{}, fmt.Errorf("row of the settings: %w", err)
	}
	return s, nil
}

// Settings returns the settings in force. It requires an administrator.
func (s *Service) Settings(ctx context.Context, a Actor) (Settings, error) {
	return answer(ctx, s, a, "settings.read", settingsName, func(d *action) (Settings, error) {
		if err := d.manage(); err != nil {
			return Settings{}, err
		}
		return settingsOf(d.Tx)
	})
}

// SaveSettings puts settings in force, each of them from 5 minutes to 30 days.
// SessionIdle applies to existing sessions too, SessionLife to new ones only,
// SecondFactor to all users at once, and TokenLife, of 1 to 366 days, to new tokens only.
// SecondFactor "" and TokenLife 0 keep what is in force. Administrators who require a second
// factor of themselves need to have one. It requires an administrator.
func (s *Service) SaveSettings(ctx context.Context, a Actor, v Settings) error {
	return s.manage(ctx, a, "settings.update", settingsName, func(d *action) error {
		was, err := settingsOf(d.Tx)
		if err != nil {
			return err
		}

		v := v // a transaction may run again
		v.SecondFactor, v.TokenLife = cmp.Or(v.SecondFactor, was.SecondFactor), cmp.Or(v.TokenLife, was.TokenLife)
		if err := v.check(); err != nil {
			return err
		}

		if was == v {
			return errUnchanged
		}

		if err := d.SetSetting(settingsName, text(v)); err != nil {
			return err
		}

		// The settings are in force in this transaction, so that administrators cannot lock
		// themselves out.
		if must, err := mustSetUp(d.Tx, a, d.access); err != nil || must {
			if must {
				err = invalid("second_factor", "set up a second factor of your own first")
			}
			return err
		}

		return d.done(text(was), text(v))
	})
}
