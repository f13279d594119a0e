package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestImportIsRefusedBeforeItsTextIsRead(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		stranger, viewer := w.person("stranger", nil), w.person("viewer", map[string]Role{"a": Viewer})
		owner := w.person("owner", map[string]Role{"a": Owner})

		// Of a text that is read, the mistake is told.
		wrong := Import{Data: []byte("policies: ["), Format: YAML}
		compared := wrong
		compared.Compare = true

		for _, row := range []struct {
			what  string
			actor Actor
			i     Import
			read  bool
		}{
			{"a user without a role", stranger, wrong, false},
			{"a user without a role who compares", stranger, compared, false},
			{"a viewer", viewer, wrong, false},
			{"a viewer who compares", viewer, compared, true},
			{"an owner", owner, wrong, true},
			{"an administrator", w.admin, wrong, true},
		} {
			_, err := w.PlanImport(ctx, row.actor, row.i)
			var invalid *InvalidError
			if errors.Is(err, ErrDenied) == row.read || errors.As(err, &invalid) != row.read {
				t.Errorf("%s: %v", row.what, err)
			}

			done, err := w.AdmitImport(ctx, row.actor, row.i.Compare)
			equal(t, fmt.Sprintf("%s is admitted with %v", row.what, err), err == nil, row.read)
			if err == nil {
				done()
			}
		}

		wantErr(t, "an import by a user without a role", errOf(w.Import(ctx, stranger, wrong)), ErrDenied)
	})
}

func TestImportWaitsForTheOneBefore(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	giveBack := must(w.parser.take(t.Context()))

	waiting, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := w.PlanImport(waiting, w.admin, importOf(t, sample("p", "a")))
	wantErr(t, "an import beside another, until its client goes", err, context.DeadlineExceeded)

	giveBack()
	must(w.PlanImport(t.Context(), w.admin, importOf(t, sample("p", "a"))))

	// A mistake gives the place back, too.
	for range 2 {
		_, err = w.PlanImport(t.Context(), w.admin, Import{Data: []byte("policies: ["), Format: YAML})
		if err == nil || !strings.Contains(err.Error(), "[") {
			t.Errorf("a mistake: %v", err)
		}
	}
}

func TestPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(places, 2)
		first := must(p.takeSoon(t.Context()))
		must(p.takeSoon(t.Context()))

		// Both are taken: the next one waits for ten seconds, or until its client goes.
		began := time.Now()
		if _, err := p.takeSoon(t.Context()); !errors.Is(err, ErrBusy) || time.Since(began) != importPatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if _, err := p.takeSoon(gone); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}

		// One that is given back is free for the one who waits.
		time.AfterFunc(time.Second, first)
		began = time.Now()
		if _, err := p.takeSoon(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// One user has one place for an import, whatever sends it, and no other user waits for that.
func TestImportsOfAUserComeOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p ownPlaces
		first := must(p.takeSoon(t.Context(), "x"))

		began := time.Now()
		if _, err := p.takeSoon(t.Context(), "x"); !errors.Is(err, ErrBusy) || time.Since(began) != importPatience {
			t.Errorf("a second place: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		other, err := p.takeSoon(t.Context(), "y")
		if err != nil || time.Since(began) != 0 {
			t.Errorf("the place of another: %v after %v", err, time.Since(began))
		}

		// Who waits gets what is given back, and nothing is remembered afterwards.
		time.AfterFunc(time.Second, first)
		second, err := p.takeSoon(t.Context(), "x")
		if err != nil || time.Since(began) != time.Second {
			t.Errorf("the place that was given back: %v after %v", err, time.Since(began))
		}
		second()
		other()
		equal(t, "users are remembered", len(p.of), 0)
	})
}

// A user with many connections takes one of the places that all share.
func TestImportsOfOneUserTakeOnePlace(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	owner := w.person("owner", map[string]Role{"a": Owner})
	done := must(w.AdmitImport(t.Context(), owner, false))

	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 3)
	for range cap(failed) {
		go func() { failed <- errOf(w.AdmitImport(ctx, owner, false)) }()
	}
	other := must(w.AdmitImport(t.Context(), w.admin, false))
	equal(t, "places are taken", len(w.imports), 2)

	cancel()
	for range cap(failed) {
		wantErr(t, "an import beside another of the user", <-failed, context.Canceled)
	}
	for _, f := range []func(){done, other, done, other} {
		f()
	}
	if len(w.imports) != 0 || len(w.importing.of) != 0 {
		t.Errorf("%d places are taken, and %d users are remembered", len(w.imports), len(w.importing.of))
	}
}
