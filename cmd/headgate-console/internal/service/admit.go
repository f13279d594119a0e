package service

import (
	"context"
	"errors"
	"time"
)

const (
	// maxImports is how many imports may be in memory at the same time. Reading YAML takes hundreds
	// of times the size of the text, so only one of them is parsed at a time.
	maxImports = 4

	// importPatience is how long an import or a backup waits for its place. It is shorter than the
	// time that the server gives a client to send its request.
	importPatience = 10 * time.Second
)

// ErrBusy means that there was no place beside other imports or backups.
var ErrBusy = errors.New("others do the same at the moment")

// places admit a bounded number of callers at a time.
type places chan struct{}

// take waits for a place, and returns what gives it back. The error is the cause of the end of ctx.
func (p places) take(ctx context.Context) (giveBack func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// takeSoon is take with the error ErrBusy after importPatience.
func (p places) takeSoon(ctx context.Context) (giveBack func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, importPatience, ErrBusy)
	defer cancel()
	return p.take(ctx)
}

// AdmitImport returns a place for an import whose text is not yet in memory. The caller calls done
// when the import has been answered. The error is a DeniedError for an actor who owns no
// application, or with compare has no role in any, and ErrBusy if there was no place for ten
// seconds. PlanImport and Import ask for the same permission again.
func (s *Service) AdmitImport(ctx context.Context, a Actor, compare bool) (done func(), err error) {
	if err := s.mayImport(ctx, a, compare); err != nil {
		return nil, err
	}
	return s.imports.takeSoon(ctx)
}

// mayImport refuses an actor who may import nothing at all, before any text is read.
func (s *Service) mayImport(ctx context.Context, a Actor, compare bool) error {
	return s.ask(ctx, a, "policy.import", "policies", func(d *action) error {
		if compare && d.access.seesAny() || !compare && d.access.editsAny() {
			return nil
		}
		return d.deny("it takes the owner of an application")
	})
}
