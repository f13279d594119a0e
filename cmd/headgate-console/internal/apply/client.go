package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// maxAnswer is more than the plan of any set has: both versions of each policy.
const maxAnswer = 64 << 20

// plan is what an import does, as the API answers.
type plan struct {
	Base      int64    `json:"base"`
	Apps      []string `json:"apps"`
	Steps     []step   `json:"steps"`
	LeftAlone []string `json:"left"`
}

type step struct {
	Name    string           `json:"name"`
	Action  string           `json:"action"`
	Before  version          `json:"before"`
	Changes []service.Change `json:"changes"`
}

type version struct {
	Version int64 `json:"version"`
}

// The actions of a step.
const (
	create = "create"
	update = "update"
	remove = "delete"
	keep   = "keep"
)

// count returns the number of steps of an action.
func (p *plan) count(action string) (n int) {
	for i := range p.Steps {
		if p.Steps[i].Action == action {
			n++
		}
	}
	return n
}

// changesAnything reports whether the plan changes anything.
func (p *plan) changesAnything() bool { return p.count(keep) < len(p.Steps) }

// isSame reports whether two plans do the same to the same versions.
func (p *plan) isSame(q *plan) bool {
	return slices.EqualFunc(p.Steps, q.Steps, func(a, b step) bool {
		return a.Name == b.Name && a.Action == b.Action && a.Before == b.Before
	})
}

// problem is an error of the API.
type problem struct {
	Status int             `json:"-"`
	Code   string          `json:"code"`
	Detail string          `json:"detail"`
	Errors []service.Fault `json:"errors"`
}

func (p *problem) Error() string { return p.Detail }

// isMoved reports whether the policies were changed since the plan was made.
func isMoved(err error) bool {
	var p *problem
	return errors.As(err, &p) && p.Code == "moved"
}

// console is the client of a console.
type console struct {
	http  *http.Client
	url   *url.URL
	token string
}

func newConsole(o *options) *console {
	// A redirect may lead to another machine, for which the token is not.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &console{http: &http.Client{Transport: transport, CheckRedirect: stay}, url: o.url, token: o.token}
}

func (c *console) close() { c.http.CloseIdleConnections() }

// post sends policies and returns the plan.
func (c *console) post(ctx context.Context, set policy.Set, query url.Values, path ...string) (*plan, error) {
	body, err := policy.EncodeJSON(set)
	if err != nil {
		return nil, err
	}
	var p plan
	if err := c.send(ctx, body, query, &p, path...); err != nil {
		return nil, err
	}
	return &p, nil
}

// send posts JSON, and reads the answer into what into points to.
func (c *console) send(ctx context.Context, body []byte, query url.Values, into any, path ...string) error {
	u := c.url.JoinPath(path...)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}

	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")

	answer, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	// A console that answers too much is cut off, and is not this program's to trust: nothing is
	// read beyond the bound.
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("the answer of %s ends too early: %w", u.Host, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("the answer of %s has more than %d bytes", u.Host, maxAnswer)
	case answer.StatusCode != http.StatusOK:
		return problemOf(answer, data)
	}

	// A proxy or another site may answer 200 with a page of its own.
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if media != "application/json" {
		return fmt.Errorf("%s does not answer as a console does", u.Host)
	}

	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s does not answer as a console does: %w", u.Host, err)
	}
	return nil
}

// problemOf returns the error of an answer.
func problemOf(answer *http.Response, data []byte) error {
	host := answer.Request.URL.Host
	// Redirects are not followed, so that the token goes nowhere else. Mostly http was given for
	// https.
	if to := answer.Header.Get("Location"); answer.StatusCode/100 == 3 && to != "" {
		return fmt.Errorf("%s redirects to %s; give the URL of the console itself", host, strconv.Quote(clip(to)))
	}

	p := &problem{Status: answer.StatusCode}
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(data, p) != nil || p.Detail == "" {
		return fmt.Errorf("%s answers %q, and not as a console does", host, answer.Status)
	}

	if p.Code == "not-logged-in" {
		p.Detail = "the token is not known, has expired or was revoked"
	}

	return p
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
