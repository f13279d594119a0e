package prefetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// Defaults of Options, which stand for its zero values.
const (
	DefaultUnits   = 64
	DefaultMaxKeys = 4096
)

const (
	maxUnits = 1 << 20
	maxKeys  = 1 << 24
)

// Options configures how much a [Store] takes ahead. The zero value is ready to
// use.
type Options struct {
	// Units is the maximum number of units held of one key; 0 means
	// DefaultUnits.
	Units int64

	// MaxKeys is the maximum number of keys of which units are held; 0 means
	// DefaultMaxKeys. Takes of other keys go to the store.
	MaxKeys int

	// Clock returns a time in microseconds that never goes back. Nil means the
	// time since the store was made. It is called concurrently.
	Clock func() int64
}

func (o *Options) check(store core.Store) error {
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("prefetch: the store is nil"))
	}
	if o.Units < 0 || o.Units > maxUnits {
		errs = append(errs, fmt.Errorf("prefetch: Units %d is not within 0 to %d", o.Units, maxUnits))
	}
	if o.MaxKeys < 0 || o.MaxKeys > maxKeys {
		errs = append(errs, fmt.Errorf("prefetch: MaxKeys %d is not within 0 to %d", o.MaxKeys, maxKeys))
	}
	return errors.Join(errs...)
}

func (o *Options) complete() {
	if o.Units == 0 {
		o.Units = DefaultUnits
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Clock == nil {
		base := time.Now()
		o.Clock = func() int64 { return time.Since(base).Microseconds() }
	}
}
