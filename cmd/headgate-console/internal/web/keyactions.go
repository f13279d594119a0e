package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// target is a key under a policy, and what the actor may do about it.
type target struct {
	Policy, Counted string
	Found           *policy.Policy // as the instances apply it to the key; nil if it is not known
	Of              service.KeyPolicy
	CanEdit         bool
	Banned          bool  // the key is, now
	Granted         int64 // units that it has beside its limit, where it was looked up
}

// Shown returns the key as people read it, and as forms send it.
func (t *target) Shown() string { return readable(t.Counted) }

// Path returns the page of the key.
func (t *target) Path() string { return keysPath(t.Policy, t.Counted) }

// CanBan reports whether the actor may ban the key under the policy.
func (t *target) CanBan() bool {
	return t.CanEdit && service.CheckBan(*t.Found, t.Counted, time.Second) == nil
}

// CanAllow reports whether the actor may put the key on a list of the policy.
func (t *target) CanAllow() bool {
	return t.CanEdit && !slices.Contains(t.Found.Access.Allow.Keys, t.Counted)
}

// CanLimit reports whether the actor may give the key a limit of its own.
func (t *target) CanLimit() bool {
	_, isPrefix := policy.OverriddenPrefix(t.Counted)
	return t.CanEdit && !isPrefix && t.Found.CheckOverriddenKey(t.Counted) == nil
}

// Own returns the limit that the key itself has under the policy, in words, or "".
func (t *target) Own() string {
	if own, ok := t.own(); ok {
		return policy.DescribeLimit(own.Limit)
	}
	return ""
}

// own returns the override of the key itself: the one in force, or else one that the instances
// leave out.
func (t *target) own() (policy.Override, bool) {
	own, ok := t.Found.Overrides[t.Counted]
	if own.BannedUntil = (time.Time{}); own != (policy.Override{}) {
		return own, true
	}
	if t.Of.Beside == nil {
		return own, ok && own != (policy.Override{})
	}
	own = *t.Of.Beside
	own.BannedUntil = time.Time{}
	return own, true
}

// keyAction is an action on a key that the user is asked about first.
type keyAction struct {
	// ask returns the question. Its Title, Consequences and what is special about it are
	// enough.
	ask func(*request, *target) confirmation

	// do acts, and returns the name of the message that says so.
	do func(*request, *target) (done string, err error)
}

// These are the actions on a key.
var (
	resetKey = keyAction{asking("reset"), inRedis((*service.Service).ResetKey, "reset")}.answer
	banKey   = keyAction{askBan, (*request).doBan}.answer
	liftBan  = keyAction{asking("lift"), inRedis((*service.Service).LiftBan, "lifted")}.answer
	allowKey = keyAction{asking("allow"), (*request).doAllow}.answer
	limitKey = keyAction{askLimit, (*request).doLimit}.answer

	grantKey  = keyAction{askGrant, (*request).doGrant}.answer
	revokeKey = keyAction{asking("revoke"), inRedis((*service.Service).RevokeKey, "taken")}.answer
	debitKey  = keyAction{askDebit, (*request).doDebit}.answer
)

// answer asks first, and then acts. The service refuses those who may not.
func (k keyAction) answer(r *request) error {
	on, err := r.targetOf(strings.TrimSpace(r.field("policy")), r.field("key"))
	if err != nil {
		return r.showMistakes(err)
	}

	// Those who may not act are not asked. The service refuses them, and records it.
	if on.CanEdit && !r.confirmed() {
		return k.showQuestion(r, on, nil)
	}

	done, err := k.do(r, on)
	// What was asked about is no longer so. The question is asked again, with the policy of now.
	var conflict *service.ConflictError
	if errors.As(err, &conflict) && !conflict.Deleted {
		return k.showQuestion(r, on, mistakes{"": {"the policy was changed since; this is how it is now"}})
	}
	if m := mistakesOf(err); m != nil {
		return k.showQuestion(r, on, m)
	}

	// It is not known whether the key was changed, so nothing is sent again without a look at it.
	if errors.Is(err, service.ErrNoFleet) {
		r.logFailure(http.StatusServiceUnavailable, err)
		why := "Redis does not answer."
		if err != service.ErrNoFleet && !noAnswer(err) {
			why = refusal(err)
		}
		return k.showQuestion(r, on, mistakes{away: {why + " It is not known whether this was done: look the key up " +
			"before you send it again"}})
	}
	if err != nil {
		return err
	}

	// A change of the policy can be taken back.
	if isPolicyChange(done) {
		done += "&" + undoOf(on.Policy)
	}
	return r.seeOther(r.origin(on), done)
}

// showMistakes shows the page of keys with what is wrong with the form.
func (r *request) showMistakes(err error) error {
	m := mistakesOf(err)
	if m == nil {
		return err
	}
	k, err := r.keys(r.req.PostForm)
	if err != nil {
		return err
	}
	k.Mistakes = m
	return r.showKeys(k)
}

// showQuestion shows the page of the question.
func (k keyAction) showQuestion(r *request, on *target, m mistakes) error {
	c := k.ask(r, on)
	c.Key, c.Action, c.Back = on.Shown(), r.req.URL.Path, r.origin(on)
	c.Fields = append(c.Fields, hidden{"policy", on.Policy}, hidden{"key", on.Shown()},
		hidden{"here", r.field("here")}, hidden{"version", number(on.Found.Version)})
	if m != nil {
		c.Mistakes = m
	}
	return r.confirm(c)
}

// origin returns the view that a form was sent from, or the page of the key.
func (r *request) origin(on *target) string {
	here, err := url.ParseQuery(r.field("here"))
	if err != nil || len(here) == 0 {
		return on.Path()
	}

	// The notice of an earlier action is not shown again.
	here.Del("done")
	here.Del("of")
	return "/keys?" + here.Encode()
}

// asking returns what asks a question that asks for nothing more.
func asking(name string) func(*request, *target) confirmation {
	return func(_ *request, k *target) confirmation { return confirmationOf(name, k.Policy) }
}

// inRedis returns what changes a key in Redis by a method of the service.
func inRedis(
	change func(*service.Service, context.Context, service.Actor, string, string) error, done string,
) func(*request, *target) (string, error) {
	return func(r *request, k *target) (string, error) {
		return done, change(r.Service, r.req.Context(), r.actor, k.Policy, k.Counted)
	}
}

// defaultBan is for how long the form bans under a policy that bans no keys by itself.
const defaultBan = 10 * time.Minute

func askBan(r *request, k *target) confirmation {
	span, help := defaultBan, "such as 10m or 24h"
	if k.Found.Ban != (core.Ban{}) {
		span = k.Found.Ban.For
		help += "; the policy bans for " + textform.Duration(k.Found.Ban.Max) + " at most"
	}
	text := textform.Duration(span)
	if r.confirmed() {
		text = r.field("for")
	}

	c := confirmationOf("ban", k.Policy)
	c.Inputs, c.Comment = []input{{"for", "For", text, help, ""}}, true
	return c
}

func (r *request) doBan(k *target) (done string, err error) {
	span, err := time.ParseDuration(strings.TrimSpace(r.field("for")))
	if err != nil && k.CanEdit {
		return "", mistake("for", "it is not a time such as 10m or 24h")
	}

	return "banned", r.Service.ImposeBan(r.req.Context(), r.saying(), k.Policy, k.Counted, span)
}

func (r *request) doAllow(k *target) (done string, err error) {
	_, err = r.Service.AllowKey(r.req.Context(), r.saying(), k.Policy, k.Counted, r.version("version"))
	return "allowed", err
}

// askLimit asks for the limit, and then whether to set it.
func askLimit(r *request, k *target) confirmation {
	was := ""
	if own, ok := k.own(); ok {
		was = own.String()
	}

	asked := confirmationOf("limit", "")
	asked.Consequences = []string{"Under " + k.Policy + " the limit of this key is now " +
		limitWords(k.Found.LimitOf(k.Counted, r.Clock())) + limitSource(k, was != "") + "."}
	asked.Inputs = []input{{"limit", "Limit of its own", was, "as text, such as " + k.Found.Limit.String() +
		", with the algorithm of the policy; empty takes its own limit away", ""}}

	// The first page asks for the limit. The second says what the limit would change.
	if _, sent := r.req.PostForm["limit"]; !sent {
		return asked
	}
	asked.Inputs[0].Value = r.field("limit")

	limit, err := readKeyLimit(r.field("limit"), was != "")
	p := *k.Found
	if err == nil {
		p, err = k.Of.WithLimit(limit)
	}

	if asked.Mistakes = mistakesOf(err); asked.Mistakes != nil {
		return asked
	}

	c := confirmationOf("own limit", "")
	why := " it comes before the limit of a plan and that of all others"
	if limit == nil {
		c = confirmationOf("no limit", "")
		why = " it has the limit of all others again" + limitSource(k, false)
	}
	c.Fields = []hidden{{"limit", r.field("limit")}}
	c.Changes = []service.Change{{
		Field: "key_limit", Before: limitWords(k.Found.LimitOf(k.Counted, r.Clock())),
		After: limitWords(p.LimitOf(k.Counted, r.Clock())),
	}}
	c.Consequences = []string{"Under " + k.Policy + why + ". The units that the key has used stay used. " +
		limitChange(k)}

	// The list of exceptions comes before every limit.
	if slices.Contains(k.Found.Access.Allow.Keys, k.Counted) {
		c.Consequences = append(c.Consequences, "The policy never limits this key now: "+
			"it is among the exceptions. As long as it is there, its own limit has no effect.")
	}
	return c
}

// limitChange says what is changed with the limit of a key.
func limitChange(k *target) string {
	if k.Of.Beside != nil {
		return "This changes its override beside the policy, which has no new version."
	}
	return "This is a change of the policy, with a version in its history that can be rolled back."
}

// limitSource returns the end of a sentence about the limit of a key.
func limitSource(k *target, own bool) string {
	switch {
	case own:
		return ", which is its own"
	case k.Found.Plans != nil:
		return ", or that of its plan"
	}
	return ""
}

// limitWords returns a limit as text and in words.
func limitWords(l core.Limit) string { return l.String() + ": " + policy.DescribeLimit(l) }

// readKeyLimit reads the limit of a key; nil takes away the one that it has.
func readKeyLimit(text string, has bool) (*policy.Override, error) {
	if strings.TrimSpace(text) == "" {
		if !has {
			return nil, mistake("limit", "it is empty, and the key has no limit of its own; "+
				"write a limit such as 100/1m")
		}
		return nil, nil
	}
	l, err := policy.ParseOverride(strings.TrimSpace(text))
	if err != nil {
		return nil, mistake("limit", err.Error())
	}
	return &l, nil
}

func (r *request) doLimit(k *target) (done string, err error) {
	limit, err := readKeyLimit(r.field("limit"), true)
	if err != nil && k.CanEdit {
		return "", err
	}
	saved, err := r.Service.LimitKey(r.req.Context(), r.saying(), k.Policy, k.Counted, limit, r.version("version"))
	return limitDone(limit == nil, k.Of.Beside != nil && saved.Version == k.Found.Version), err
}

// limitDone returns the name of the message about the limit of a key. A change beside the policy
// has another one than a change of the policy, which can be undone.
func limitDone(taken, beside bool) string {
	switch {
	case beside && taken:
		return "nooverride"
	case beside:
		return "override"
	case taken:
		return "nolimit"
	}
	return "ownlimit"
}

// CanGrant reports whether the actor may give the key units, or take them away.
func (t *target) CanGrant() bool {
	return t.CanEdit && !t.Found.LimitOf(t.Counted, time.Now()).Leased()
}

// CanDebit reports whether the actor may charge the key units beyond its limit.
func (t *target) CanDebit() bool {
	return t.CanEdit && service.CheckDebit(*t.Found, t.Counted, 1, time.Now()) == nil
}

// askGrant asks for the units that a key gets, and until when.
func askGrant(r *request, k *target) confirmation {
	zone := r.field("zone")
	if zone == "" {
		zone = "UTC"
	}
	c := confirmationOf("grant", k.Policy)
	c.Inputs = []input{
		{"units", "Units", r.field("units"), "a whole number, such as 10,000", ""},
		{"until", "Until", r.field("until"), "by the clock of the time zone, within ten years", "datetime-local"},
		{"zone", "Time zone", zone, "such as UTC or Europe/Berlin", ""},
	}
	return c
}

func (r *request) doGrant(k *target) (done string, err error) {
	m := mistakes{}
	units := readUnits(m, r.field("units"))
	until := readTime(m, "until", r.field("until"), strings.TrimSpace(r.field("zone")))
	if len(m) > 0 && k.CanEdit {
		return "", m.err()
	}

	return "granted", r.Service.GrantKey(r.req.Context(), r.actor, k.Policy, k.Counted, units, until)
}

// askDebit asks for the units that a key is charged.
func askDebit(r *request, k *target) confirmation {
	l := k.Found.LimitOf(k.Counted, r.Clock())
	c := confirmationOf("debit", k.Policy)
	c.Inputs = []input{{"units", "Units", r.field("units"), "a whole number, such as 20; " + l.String() +
		" and its debt hold " + digits(l.Capacity()+l.MaxDebt()), ""}}
	return c
}

func (r *request) doDebit(k *target) (done string, err error) {
	m := mistakes{}
	units := readUnits(m, r.field("units"))
	if len(m) > 0 && k.CanEdit {
		return "", m.err()
	}

	charged, err := r.Service.DebitKey(r.req.Context(), r.actor, k.Policy, k.Counted, units)
	if charged < units {
		return "partly", err
	}
	return "charged", err
}

// grouped matches a number whose digits stand in groups of three.
var grouped = regexp.MustCompile(`^\d{1,3}([, _']\d{3})+$`)

// readUnits reads a number of units, and adds a mistake. The service says how many there may be.
func readUnits(m mistakes, text string) int64 {
	text = strings.TrimSpace(text)
	if grouped.MatchString(text) {
		text = strings.NewReplacer(",", "", " ", "", "_", "", "'", "").Replace(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		m.add("units", "it is not a whole number, such as 500")
	}
	return n
}
