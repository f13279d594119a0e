// This file asks addresses whether they are well.

package upstream

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// start begins to ask the addresses. Each gets requests until its answers say otherwise.
func (p *Pool) start() {
	if p.options.Health.Path == "" {
		return
	}
	p.asking, p.end = context.WithCancel(context.Background())
	for _, a := range p.addresses {
		p.checking.Go(func() { p.check(p.asking, a) })
	}
}

// close ends the questions, and the connections that have no request. Requests go on.
func (p *Pool) close() {
	if p.end != nil {
		p.end()
		p.checking.Wait()
	}
	p.transport.CloseIdleConnections()
}

// check asks an address until the context ends, the first time at once.
func (p *Pool) check(ctx context.Context, a *address) {
	pause := time.NewTicker(p.options.Health.Interval)
	defer pause.Stop()
	for others := 0; ; {
		err := p.ask(ctx, a)
		if ctx.Err() != nil {
			return
		}

		// Only answers in a row that differ from what is known change it.
		if sick := err != nil; sick == a.sick.Load() {
			others = 0
		} else if others++; others >= p.options.Health.Threshold {
			others = 0
			a.sick.Store(sick)
			p.tell(a, err)
		}

		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell logs a change.
func (p *Pool) tell(a *address, err error) {
	if err == nil {
		p.logger.Info("an address of an upstream is well again", "upstream", p.options.Name, "address", a.url.Host)
		return
	}
	p.logger.Warn("an address of an upstream is not well, and gets no requests while others are",
		"upstream", p.options.Name, "address", a.url.Host, "path", p.options.Health.Path, "error", err.Error())
}

// ask asks an address once. A redirection is not followed, as it says nothing of this address.
func (p *Pool) ask(ctx context.Context, a *address) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.Health.Timeout)
	defer cancel()

	scheme := p.Target().Scheme
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+a.url.Host+p.options.Health.Path, nil)
	if err != nil {
		return err
	}

	if p.options.Host != "" {
		r.Host = p.options.Host
	}

	r.Header.Set("User-Agent", "headgate-gateway")

	// It goes by the connections of requests, so it finds what they would find.
	res, err := p.transport.RoundTrip(r)
	if err != nil {
		return err
	}

	discard(res)
	switch {
	case res.StatusCode/100 == 3:
		return fmt.Errorf("it answers %d and redirects to %q; name a path that answers 2xx itself", res.StatusCode,
			textform.Clip(res.Header.Get("Location")))
	case res.StatusCode/100 != 2:
		return fmt.Errorf("it answers %d", res.StatusCode)
	}

	return nil
}
