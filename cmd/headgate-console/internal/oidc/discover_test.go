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

// A provider that hangs delays each log-in as long as a question may take, and later ones ask
// again. One that has answered is asked no more.
func TestProviderIsAskedUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answering{takes: time.Hour}
		p := providerOf(t, a)
		for round := 1; round <= 2; round++ {
			took, errs := begin(p, 100)
			for _, err := range errs {
				if !errors.Is(err, ErrAway) {
					t.Fatalf("the error is %v", err)
				}
			}

			if took != answerTime || a.asked != 100*round {
				t.Errorf("round %d: 100 log-ins took %s and %d requests in all", round, took, a.asked)
			}
		}

		// The browser of the first log-in goes away before the answer.
		a.takes, a.body = time.Second, described
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, _, err := p.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a browser that has gone: %v", err)
		}

		// The next one waits for the answer, and no other asks again.
		for _, wait := range []time.Duration{time.Second, 0} {
			if took, errs := begin(p, 1); took != wait || errors.Join(errs...) != nil || a.asked != 202 {
				t.Errorf("%s, %d requests in all, %v", took, a.asked, errors.Join(errs...))
			}
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
