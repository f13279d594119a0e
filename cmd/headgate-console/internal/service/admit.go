package service

import (
	"context"
	"errors"
	"sync"
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

// ownPlaces admit one caller of each user at a time. The zero value is ready.
type ownPlaces struct {
	mu sync.Mutex
	of map[string]*ownPlace // Guarded by mu. It has the users who have or wait for their place.
}

type ownPlace struct {
	places
	callers int // that have it or wait for it
}

// takeSoon waits for the place of a user, as [places.takeSoon] does.
func (o *ownPlaces) takeSoon(ctx context.Context, user string) (giveBack func(), err error) {
	o.mu.Lock()
	own := o.of[user]
	if own == nil {
		own = &ownPlace{places: make(places, 1)}
		if o.of == nil {
			o.of = map[string]*ownPlace{}
		}
		o.of[user] = own
	}
	own.callers++
	o.mu.Unlock()

	free, err := own.takeSoon(ctx)
	if err != nil {
		o.leave(user, own)
		return nil, err
	}
	return func() {
		free()
		o.leave(user, own)
	}, nil
}

// leave forgets the place of a user if no other request waits for it.
func (o *ownPlaces) leave(user string, own *ownPlace) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own.callers--; own.callers == 0 {
		delete(o.of, user)
	}
}

// AdmitImport returns a place for an import whose text is not yet in memory. A user has one at a
// time, with all sessions and tokens, so that one slow client does not keep the others out. The
// caller calls done before the answer is sent, which the client may receive slowly. Further calls
// of done do nothing. The error is a DeniedError for an actor who owns no application, or with
// compare has no role in any, and ErrBusy if there was no place for ten seconds. PlanImport and
// Import ask for the same permission again.
func (s *Service) AdmitImport(ctx context.Context, a Actor, compare bool) (done func(), err error) {
	if err := s.mayImport(ctx, a, compare); err != nil {
		return nil, err
	}

	own, err := s.importing.takeSoon(ctx, a.user)
	if err != nil {
		return nil, err
	}
	shared, err := s.imports.takeSoon(ctx)
	if err != nil {
		own()
		return nil, err
	}
	return sync.OnceFunc(func() {
		shared()
		own()
	}), nil
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
