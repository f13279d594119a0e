package limiter

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// Answer is what a client gets instead of the handler's answer.
type Answer struct {
	// Status is a final status, 200 to 999. Any other, such as 0, means the status
	// of [Admission.Status], or 200 for a degraded request.
	Status  int
	Headers []Header // besides those of the limiter; names are canonical
	Body    []byte
}

// Template makes the answer to a request that is refused, that failed or that is
// degraded; see [Config]. It must be safe for concurrent use and must not keep the
// admission. A template may return the same answer each time. Its answers should hold
// nothing that the client sent. A panic of a template is reported as an error, and the answer
// is then as without one.
type Template func(a *Admission) Answer

// answers are how a limiter answers in place of handlers, and which headers it sends.
type answers struct {
	headers       HeaderStyle
	customHeaders func([]RuleDecision) []Header
	refused       Template
	failed        Template
	degraded      Template
	keepResult    bool
	cancelOnLost  bool
}

// template returns the template of the Config for the answer, or nil.
func (a *answers) template(res *Result) Template {
	switch {
	case res.outcome == Pass:
	case res.status == unavailableStatus:
		return a.failed
	default:
		return a.refused
	}
	if res.degraded {
		return a.degraded
	}
	return nil
}

// PlainText answers in one line of text/plain.
func PlainText(a *Admission) Answer {
	b, p := make([]byte, 0, 64), a.problem()
	switch outcome := a.Outcome(); {
	case outcome == Failed:
		b = append(b, "Service unavailable."...)
	case outcome == QueueFull:
		b = p.appendDetail(b)
	case a.result.isDenied():
		b = append(append(b, denialTitles[a.Status()]...), '.')
	case a.result.Banned():
		b = p.appendDetail(append(b, "Abnormal usage detected. "...))
	default:
		b = p.appendDetail(append(b, "Too many requests. "...))
	}

	return typed(a, "text/plain; charset=utf-8", append(b, '\n'))
}

// JSON answers with an object of "error", which is "too_many_requests",
// "abnormal_usage_detected" for a banned key, "forbidden", "service_unavailable" or
// "queue_full"; "retry_after" in seconds, unless a retry can
// never succeed; and, except for a failure, "rules", the names of the rules that refused.
func JSON(a *Admission) Answer {
	b, p := make([]byte, 0, 128), a.problem()
	switch outcome := a.Outcome(); {
	case outcome == Failed:
		b = append(b, `{"error":"service_unavailable"`...)
	case outcome == QueueFull:
		b = append(b, `{"error":"queue_full"`...)
	case a.Status() == forbidden:
		b = append(b, `{"error":"forbidden"`...)
	case a.result.Banned():
		b = append(b, `{"error":"abnormal_usage_detected"`...)
	default:
		b = append(b, `{"error":"too_many_requests"`...)
	}

	// A client that can never succeed is given no time to come again.
	if n := a.RetryAfter(); n > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), n, 10)
	}

	// A failure is no rule's doing, so it names none.
	if o := a.Outcome(); o == Refused || o == QueueFull {
		b = p.appendViolated(append(b, `,"rules":`...))
	}

	return typed(a, "application/json", append(b, '}'))
}

// ProblemJSON answers with [Admission.Problem]. It is the default of Refused and Failed
// in a [Config].
func ProblemJSON(a *Admission) Answer { return typed(a, ProblemType, a.Problem()) }

// Fixed always returns the same answer. Its headers and body must not be changed
// afterwards.
func Fixed(answer Answer) Template {
	return func(*Admission) Answer { return answer }
}

func typed(a *Admission, contentType string, body []byte) Answer {
	return Answer{a.Status(), []Header{{"Content-Type", contentType}}, body}
}

// Redirect answers 303 See Other, with the target in Location: a path such as
// "/busy", or an http or https URL, in ASCII without spaces, as in an HTTP message.
// The target must not be limited by the same limiter, because clients would then be
// redirected again and again.
func Redirect(target string) (Template, error) {
	if err := checkTarget(target); err != nil {
		return nil, fmt.Errorf("Redirect: %w", err)
	}
	return Fixed(Answer{Status: 303, Headers: []Header{{"Location", target}}}), nil
}

// MustRedirect is [Redirect] for program text. It panics where that returns an
// error.
func MustRedirect(target string) Template { return must(Redirect(target)) }

func checkTarget(target string) error {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return fmt.Errorf("the target holds the byte %#x", c)
		}
	}

	// Browsers take "//host" for another site, so one slash alone begins a path.
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return errors.New("the target is not a URL")
	case u.Scheme == "" && strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//"):
		return nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("the target is neither a path that begins with one slash nor an http or https URL")
	case u.User != nil:
		return errors.New("the target holds a user")
	}
	return nil
}

func must(t Template, err error) Template {
	if err != nil {
		panic(err)
	}
	return t
}

// ProblemType is the Content-Type of [Admission.Problem].
const ProblemType = "application/problem+json"

// The statuses that an answer may have: final, and of three digits.
const (
	minFinalStatus = 200
	maxStatus      = 999
)

// problemHeaders are those of [ProblemJSON].
var problemHeaders = []Header{{"Content-Type", ProblemType}}

const unavailable = `{"type":"about:blank","title":"Service Unavailable","status":503}`

// storeAway is the problem of a request that costs more than this instance's part.
const storeAway = `{"type":"about:blank","title":"Service Unavailable","status":503,` +
	`"detail":"The store of the counts is away, and this server alone cannot admit as much at once."}`

// The problem types that draft-ietf-httpapi-ratelimit-headers registers for a refusal, with
// their titles, up to the detail.
const (
	quotaExceeded = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"`
	abnormalUsage = `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
		`"title":"Request not satisfied due to detection of abnormal request pattern","status":429,"detail":"`
)

// problem is what the body of an answer says to a request that does not pass.
type problem struct {
	res     *Result
	seconds int64  // Retry-After, or 0
	text    []byte // the seconds as the header has them, or empty
}

func (p *problem) append(b []byte) []byte {
	switch p.res.outcome {
	case Failed:
		return append(b, unavailable...)
	case QueueFull:
		return p.appendQueueFull(b)
	}

	// Of the refusals, a denial has no quota to name.
	if p.res.isDenied() {
		return p.appendDenied(b)
	}
	if p.res.status == unavailableStatus {
		return append(b, storeAway...)
	}
	return p.appendRefusal(b)
}

// appendRefusal writes the problem of a limit or a ban. Rule names need no escapes.
func (p *problem) appendRefusal(b []byte) []byte {
	kind := quotaExceeded
	if p.res.Banned() {
		kind = abnormalUsage
	}
	b = p.appendDetail(append(b, kind...))
	return p.appendPolicies(b)
}

// violatedPolicies stands between the detail of a problem and the list of its rules.
const violatedPolicies = `","violated-policies":`

// appendPolicies ends a problem with the rules that refused the request.
func (p *problem) appendPolicies(b []byte) []byte {
	if p.res.asked == 1 && p.res.violates(0) { // most limiters have one rule
		return append(b, p.res.calls[0].terms.violated...)
	}
	return append(p.appendViolated(append(b, violatedPolicies...)), '}')
}

// appendQueueFull writes the problem type that the same draft registers for a capacity
// that is exhausted for a while.
func (p *problem) appendQueueFull(b []byte) []byte {
	b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":`...)
	b = strconv.AppendInt(b, int64(p.res.status), 10)
	return p.appendPolicies(p.appendDetail(append(b, `,"detail":"`...)))
}

// appendDenied writes a problem without a registered type, because there is no quota that
// it could be about.
func (p *problem) appendDenied(b []byte) []byte {
	status := int(p.res.status)
	b = fmt.Appendf(b, `{"type":"about:blank","title":"%s","status":%d,"violated-policies":`,
		denialTitles[status], status)
	return append(p.appendViolated(b), '}')
}

// appendViolated writes a JSON list of the rules that refused the request.
func (p *problem) appendViolated(b []byte) []byte {
	const first = `["`
	res, before := p.res, first
	for i := range res.asked {
		if res.violates(i) {
			b = append(append(b, before...), res.calls[i].rule.Name...)
			before = `","`
		}
	}
	if before == first {
		return append(b, "[]"...)
	}
	return append(b, `"]`...)
}

// appendDetail writes the sentence about when to try again.
func (p *problem) appendDetail(b []byte) []byte {
	seconds := p.seconds
	if p.res.outcome == QueueFull {
		b = append(b, "Too many requests wait already. "...)
	}
	if seconds == 0 {
		return append(b, "The request asks for more than the quota can ever hold."...)
	}
	b = append(b, "Retry after "...)
	if len(p.text) > 0 {
		b = append(b, p.text...)
	} else {
		b = strconv.AppendInt(b, seconds, 10)
	}
	if seconds == 1 {
		return append(b, " second."...)
	}
	return append(b, " seconds."...)
}

// maxTarpit is the longest delay of [Tarpit].
const maxTarpit = time.Minute

// Tarpit holds a request for delay before it answers with then, so that a
// client which does not heed Retry-After gets slower. delay is above 0 and at
// most a minute. At most maxHeld requests, 1 or more, are held at the same
// time. Further requests are answered at once, and so are held ones when the
// client leaves or the limiter is closed. A held request costs its goroutine and
// its connection.
//
// The error lists every mistake. Each template that Tarpit returns has its own
// count of held requests.
func Tarpit(delay time.Duration, maxHeld int, then Template) (Template, error) {
	var errs []error
	if delay <= 0 || delay > maxTarpit {
		errs = append(errs, fmt.Errorf("Tarpit: the delay %s is not above 0 and at most %s",
			delay, textform.Duration(maxTarpit)))
	}
	if maxHeld < 1 {
		errs = append(errs, fmt.Errorf("Tarpit: maxHeld %d is below 1", maxHeld))
	}
	if then == nil {
		errs = append(errs, errors.New("Tarpit: then is nil"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	t := &tarpit{delay: delay, max: int64(maxHeld), then: then}
	return t.answer, nil
}

// MustTarpit is [Tarpit] for program text. It panics where that returns an
// error.
func MustTarpit(delay time.Duration, maxHeld int, then Template) Template {
	return must(Tarpit(delay, maxHeld, then))
}

type tarpit struct {
	delay time.Duration
	max   int64
	then  Template
	held  atomic.Int64
}

func (t *tarpit) answer(a *Admission) Answer {
	t.hold(a.ctx, a.result.engine)
	return t.then(a)
}

func (t *tarpit) hold(ctx context.Context, e *engine) {
	if e == nil || ctx == nil {
		return
	}
	defer t.held.Add(-1)
	if t.held.Add(1) <= t.max {
		_ = e.sleep(ctx, t.delay) // the answer follows in any case
	}
}
