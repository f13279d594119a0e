package oidc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// answering is a provider whose every answer takes a time.
type answering struct {
	mu    sync.Mutex
	asked int
	takes time.Duration
	body  string
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.asked++
	a.mu.Unlock()
	select {
	case <-time.After(a.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

const issuer = "https://login.example.com"

// described is what the provider says of itself.
const described = `{"issuer": "` + issuer + `", "authorization_endpoint": "` + issuer +
	`/authorize", "token_endpoint": "` + issuer + `/token", "jwks_uri": "` + issuer + `/keys"}`

func providerOf(t *testing.T, a *answering) *Provider {
	t.Helper()
	p, err := New(Options{Issuer: issuer, ClientID: "console", Secret: "x", PublicURL: "https://console.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	p.client.Transport = bounded{a}
	return p
}

// begin begins so many log-ins at once, and returns how long all of them took, and their errors.
func begin(p *Provider, n int) (took time.Duration, errs []error) {
	begun := time.Now()
	errs = make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, _, errs[i] = p.Begin(context.Background()) })
	}
	all.Wait()
	return time.Since(begun), errs
}

// Log-ins that wait for a provider that hangs do not wait for each other, and later ones ask
// again.
func TestProviderThatHangsIsAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answering{takes: time.Hour}
		p := providerOf(t, a)
		for round := 1; round <= 2; round++ {
			// All hundred share one question, and wait no longer than it may take.
			took, errs := begin(p, 100)
			for _, err := range errs {
				if !errors.Is(err, ErrAway) {
					t.Fatalf("the error is %v", err)
				}
			}

			if took != answerTime || a.asked != round {
				t.Errorf("round %d: 100 log-ins took %s and %d requests in all", round, took, a.asked)
			}
		}

		// After the failures the provider is asked again, and then no more.
		a.takes, a.body = time.Second, described
		if took, errs := begin(p, 100); took != time.Second || errors.Join(errs...) != nil || a.asked != 3 {
			t.Errorf("%s, %d requests in all, %v", took, a.asked, errors.Join(errs...))
		}

		if took, errs := begin(p, 100); took != 0 || errors.Join(errs...) != nil || a.asked != 3 {
			t.Errorf("a provider that is known: %s, %d requests in all, %v", took, a.asked, errors.Join(errs...))
		}
	})
}

// A browser that has gone does not wait, and does not end the question of the others.
func TestProviderIsAskedOnForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := providerOf(t, &answering{takes: 5 * time.Second, body: described})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		begun := time.Now()
		gone := make(chan error)
		go func() {
			_, _, err := p.Begin(ctx)
			gone <- err
		}()

		// The second log-in comes while the question of the first one is open.
		synctest.Wait()

		other := make(chan error)
		go func() {
			_, _, err := p.Begin(context.Background())
			other <- err
		}()

		// The first one ends with its browser, and the question goes on for the second one.
		if err := <-gone; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}

		if err := <-other; err != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// Of an answer that is too large the provider reads a part.
func TestProviderAnswerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		padded := described[:len(described)-1] + `, "x": "` + strings.Repeat("x", answerSize) + `"}`
		if _, _, err := providerOf(t, &answering{body: padded}).Begin(t.Context()); !errors.Is(err, ErrAway) {
			t.Errorf("an answer of %d bytes: %v", len(padded), err)
		}
		fits := described[:len(described)-1] + `, "x": "` + strings.Repeat("x", answerSize-len(described)-20) + `"}`
		if _, _, err := providerOf(t, &answering{body: fits}).Begin(t.Context()); err != nil {
			t.Errorf("an answer of %d bytes: %v", len(fits), err)
		}
	})
}
