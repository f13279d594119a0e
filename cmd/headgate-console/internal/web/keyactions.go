package web

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// Shown returns the key as people read it.
func (k *keys) Shown() string { return readable(k.Counted) }

// Sent returns the key as a form sends it.
func (k *keys) Sent() string { return sentForm(k.Counted) }

// CanBan reports whether the actor may ban the key under the policy.
func (k *keys) CanBan() bool {
	return k.CanReset && service.CheckBan(*k.Found, time.Second) == nil
}

// CanAllow reports whether the actor may put the key on a list of the policy.
func (k *keys) CanAllow() bool {
	return k.CanReset && !slices.Contains(k.Found.Access.Allow.Keys, k.Counted)
}

// CanLimit reports whether the actor may give the key a limit of its own.
func (k *keys) CanLimit() bool {
	_, isPrefix := policy.OverriddenPrefix(k.Counted)
	return k.CanReset && !isPrefix && k.Found.CheckOverriddenKey(k.Counted) == nil
}

// Own returns the limit that the key itself has under the policy, in words, or "".
func (k *keys) Own() string {
	if own, ok := k.own(); ok {
		return policy.DescribeLimit(own.Limit)
	}
	return ""
}

// own returns the override of the key itself: the one in force, or else one that the instances
// leave out.
func (k *keys) own() (policy.Override, bool) {
	own, ok := k.Found.Overrides[k.Counted]
	if !ok && k.Of.Beside != nil {
		return *k.Of.Beside, true
	}
	return own, ok
}

// exactKey reads the key of a form that the console has made itself. ok is false if the form
// has a key that a person has typed.
func (r *request) exactKey() (key string, ok bool, err error) {
	sent, ok := r.req.PostForm["sent"]
	if !ok {
		return "", false, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(sent[0])
	if err != nil {
		return "", true, errBadForm
	}
	return string(text), true, nil
}

// keyAction is an action on a key that the user is asked about first.
type keyAction struct {
	// ask returns the question. Its Title, Consequences and what is special about it are
	// enough.
	ask func(*request, *keys) confirmation

	// do acts, and returns the page that shows the result, with the name of its message.
	do func(*request, *keys) (page, done string, err error)
}

// These are the actions on a key.
var (
	resetKey = keyAction{askReset, (*request).doReset}.answer
	banKey   = keyAction{askBan, (*request).doBan}.answer
	liftBan  = keyAction{askLift, (*request).doLift}.answer
	allowKey = keyAction{askAllow, (*request).doAllow}.answer
	limitKey = keyAction{askLimit, (*request).doLimit}.answer

	grantKey  = keyAction{askGrant, (*request).doGrant}.answer
	revokeKey = keyAction{askRevoke, (*request).doRevoke}.answer
	debitKey  = keyAction{askDebit, (*request).doDebit}.answer
)

// answer asks first, and then acts. The service refuses those who may not.
func (k keyAction) answer(r *request) error {
	shown, err := r.sentKey()
	if err != nil || shown.Mistakes != nil {
		return errOr(err, func() error { return r.showKeys(shown, http.StatusUnprocessableEntity) })
	}

	// Those who may not act are not asked. The service refuses them, and records it.
	if shown.CanReset && !r.confirmed() {
		return k.showQuestion(r, shown, nil)
	}

	page, done, err := k.do(r, shown)
	// What was asked about is no longer so. The question is asked again, with the policy of now.
	var conflict *service.ConflictError
	if errors.As(err, &conflict) && !conflict.Deleted {
		return k.showQuestion(r, shown, mistakes{"": {"the policy was changed since; this is how it is now"}})
	}
	if m := mistakesOf(err); m != nil {
		return k.showQuestion(r, shown, m)
	}

	// It is not known whether the key was changed, so nothing is sent again without a look at it.
	if errors.Is(err, errFleet) {
		r.logFailure(http.StatusServiceUnavailable, err)
		return k.showQuestion(r, shown, mistakes{away: {"Redis does not answer, so it is not known whether this was " +
			"done: look the key up before you send it again"}})
	}
	if err != nil {
		return err
	}

	if from, ok := r.origin(); ok {
		page = from
	}
	return r.seeOther(page, done)
}

// showQuestion shows the page of the question.
func (k keyAction) showQuestion(r *request, shown *keys, m mistakes) error {
	c := k.ask(r, shown)
	c.Key, c.Action, c.Back = shown.Shown(), r.req.URL.Path, keysPath(shown.Policy)

	// The key is sent in the form of the console's own, which keeps every byte of it.
	c.Fields = append(c.Fields, hidden{"policy", shown.Policy}, hidden{"sent", shown.Sent()},
		hidden{"version", number(shown.Found.Version)})

	// The way back, and the way on after the action, lead to the list that the key was seen in.
	if from, ok := r.origin(); ok {
		c.Back = from
		c.Fields = append(c.Fields, hidden{"from", r.field("from")}, hidden{"here", r.field("here")})
	}

	if m != nil {
		c.Mistakes = m
	}
	return r.confirm(c)
}

// keysPath returns the page for looking up another key of a policy.
func keysPath(policy string) string { return "/keys?policy=" + url.QueryEscape(policy) }

// origin returns the page with a list of keys that a form was sent from, if it was one.
func (r *request) origin() (path string, ok bool) {
	here, err := url.ParseQuery(r.field("here"))
	if from := r.field("from"); err != nil || from != "who" && from != "bans" {
		return "", false
	}

	// The notice of an earlier action is not shown again.
	here.Del("done")
	return "/" + r.field("from") + "?" + here.Encode(), true
}

func askReset(_ *request, k *keys) confirmation {
	return confirmation{
		Title:        "Reset this key?",
		Consequences: []string{"Under " + k.Policy + " the key will be fresh: its used units are forgotten."},
		Button:       "Reset the key", Danger: true,
	}
}

func (r *request) doReset(k *keys) (page, done string, err error) {
	err = r.Service.ResetKey(r.req.Context(), r.actor, k.Policy, k.Counted,
		func(ctx context.Context, p policy.Policy, key string) error {
			return fleetErr(r.Fleet.Reset(ctx, p, key))
		})
	return keysPath(k.Policy), "reset", err
}

func askLift(_ *request, k *keys) confirmation {
	return confirmation{
		Title: "Lift the ban of this key?",
		Consequences: []string{"Under " + k.Policy + " its requests are decided by the limit again. " +
			"The bans before are forgotten; the units that the key has used stay used."},
		Button: "Lift the ban",
	}
}

func (r *request) doLift(k *keys) (page, done string, err error) {
	err = r.Service.LiftBan(r.req.Context(), r.actor, k.Policy, k.Counted,
		func(ctx context.Context, p policy.Policy, key string) error {
			return fleetErr(r.Fleet.Lift(ctx, p, key))
		})
	return bansPath(k.Policy), "lifted", err
}

func askBan(r *request, k *keys) confirmation {
	span := textform.Duration(k.Found.Ban.For)
	if r.confirmed() {
		span = r.field("for")
	}

	return confirmation{
		Title: "Ban this key?",
		Consequences: []string{"Every request of the key will be refused under " + k.Policy + ", " +
			"in all instances, until the ban ends or is lifted. A ban that it is under already is replaced."},
		Inputs: []input{{"for", "For", span, "such as 10m or 24h; the policy bans for " +
			textform.Duration(k.Found.Ban.Max) + " at most", ""}},
		Button: "Ban the key", Danger: true,
	}
}

func (r *request) doBan(k *keys) (page, done string, err error) {
	span, err := time.ParseDuration(strings.TrimSpace(r.field("for")))
	if err != nil && k.CanReset {
		return "", "", mistake("for", "it is not a time such as 10m or 24h")
	}

	err = r.Service.ImposeBan(r.req.Context(), r.actor, k.Policy, k.Counted, span,
		func(ctx context.Context, p policy.Policy, key string, span time.Duration) error {
			return fleetErr(r.Fleet.Impose(ctx, p, key, span))
		})
	return bansPath(k.Policy), "banned", err
}

func askAllow(_ *request, k *keys) confirmation {
	return confirmation{
		Title: "Never limit this key?",
		Consequences: []string{k.Policy + " will not limit the key any longer: all of its requests pass, " +
			"however many, and a ban does not stop them. " +
			"This is a change of the policy, with a version in its history that can be rolled back."},
		Button: "Never limit it", Danger: true, Comment: true,
	}
}

func (r *request) doAllow(k *keys) (page, done string, err error) {
	_, err = r.Service.AllowKey(r.req.Context(), r.saying(), k.Policy, k.Counted, r.version("version"))
	return policyPath(k.Policy), "allowed", err
}

// askLimit asks for the limit, and then whether to set it.
func askLimit(r *request, k *keys) confirmation {
	was := ""
	if own, ok := k.own(); ok {
		was = own.String()
	}

	asked := confirmation{
		Title: "Which limit for this key?",
		Consequences: []string{"Under " + k.Policy + " the limit of this key is now " +
			limitWords(k.Found.LimitOf(k.Counted, r.Clock())) + limitSource(k, was != "") + "."},
		Inputs: []input{{"limit", "Limit of its own", was, "as text, such as " + k.Found.Limit.String() +
			", with the algorithm of the policy; " +
			"empty takes its own limit away", ""}},
		Asks: true, Button: "Show what changes",
	}

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

	c := confirmation{
		Title: "Give this key a limit of its own?", Button: "Give it this limit", Comment: true,
		Fields: []hidden{{"limit", r.field("limit")}},
		Changes: []service.Change{{
			Field: "key_limit", Before: limitWords(k.Found.LimitOf(k.Counted, r.Clock())),
			After: limitWords(p.LimitOf(k.Counted, r.Clock())),
		}},
		Consequences: []string{"Under " + k.Policy + " it comes before the limit of a plan and that of all " +
			"others. The units that the key has used stay used. " + limitChange(k)},
	}

	// An empty limit takes the own one away.
	if limit == nil {
		c.Title, c.Button = "Take the own limit of this key away?", "Take it away"
		c.Consequences[0] = "Under " + k.Policy + " it has the limit of all others again" +
			limitSource(k, false) + ". The units that the key has used stay used. " + limitChange(k)
	}

	// The list of exceptions comes before every limit.
	if slices.Contains(k.Found.Access.Allow.Keys, k.Counted) {
		c.Consequences = append(c.Consequences, "The policy never limits this key now: "+
			"it is among the exceptions. As long as it is there, its own limit has no effect.")
	}
	return c
}

// limitChange says what is changed with the limit of a key.
func limitChange(k *keys) string {
	if k.Of.Beside != nil {
		return "This changes its override beside the policy, which has no new version."
	}
	return "This is a change of the policy, with a version in its history that can be rolled back."
}

// limitSource returns the end of a sentence about the limit of a key.
func limitSource(k *keys, own bool) string {
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

func (r *request) doLimit(k *keys) (page, done string, err error) {
	limit, err := readKeyLimit(r.field("limit"), true)
	if err != nil && k.CanReset {
		return "", "", err
	}
	saved, err := r.Service.LimitKey(r.req.Context(), r.saying(), k.Policy, k.Counted, limit, r.version("version"))
	return policyPath(k.Policy), limitDone(limit == nil, k.Of.Beside != nil && saved.Version == k.Found.Version), err
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

// mistake returns the error of one field of a form.
func mistake(field, text string) error {
	return &service.InvalidError{Faults: []service.Fault{{Field: field, Message: text}}}
}

// fleetErr has a failure of Redis answered as one. A mistake is none.
func fleetErr(err error) error {
	if err != nil && mistakesOf(err) == nil {
		return fmt.Errorf("%w: %w", errFleet, err)
	}
	return err
}

// otherPolicy is a policy under which a key counts, beside the one that was asked for.
type otherPolicy struct {
	Policy string
	Shown  string // the key as that policy counts it
	Sent   string
	*gauge
}

// maxOthers is how many policies a key is looked up under at most.
const maxOthers = 50

// lookUpEach finds the key under the policy that was asked for, and then under each other one
// that counts its kind.
func (r *request) lookUpEach(k *keys) error {
	if k.Found != nil {
		err := r.Service.LookUp(r.req.Context(), r.actor, k.Found.Name, k.Counted,
			func(ctx context.Context, p policy.Policy, key string) (err error) {
				if k.Gauge, err = r.peek(ctx, p, key); err == nil {
					err = r.addCredits(ctx, k.Gauge, p, key)
				}
				return err
			})
		if err != nil {
			return err
		}
	}

	more, err := r.Service.LookUpEach(r.req.Context(), r.actor, k.typed(), maxOthers, k.meets,
		func(p policy.Policy) string { return counted(r.req.Context(), p, k.typed()) },
		func(ctx context.Context, p policy.Policy, key string) error {
			g, err := r.peek(ctx, p, key)
			k.Others = append(k.Others, otherPolicy{p.Name, readable(key), sentForm(key), g})
			return err
		})

	k.Further = more
	// Of those with the same share of their limit used, the order is that of the names.
	rank := func(m otherPolicy) int {
		if m.Banned {
			return 101
		}
		return m.Percent
	}

	if err == nil {
		slices.SortStableFunc(k.Others, func(a, b otherPolicy) int { return rank(b) - rank(a) })
	}
	return err
}

// peek returns how much of its limit a key has used.
func (r *request) peek(ctx context.Context, p policy.Policy, key string) (*gauge, error) {
	d, err := r.Fleet.Peek(ctx, p, key)
	if err != nil {
		return nil, fleetErr(err)
	}
	return newGauge(p.LimitOf(key, r.Clock()), d, r.Clock()), nil
}

// typed returns what was looked for.
func (k *keys) typed() string {
	if k.Key != "" {
		return k.Key
	}
	return k.Counted
}

// meets reports whether the policy counts requests by keys of the same kind as the one that
// was looked up: by the same recipe, or by addresses. If no policy was asked for, any kind will
// do but that of addresses for a key that is none, and that of others for an address.
func (k *keys) meets(p policy.Policy) bool {
	if k.Found == nil {
		return p.Key != "global" && isAddress(p.Key) == looksLikeAddress(k.typed())
	}
	shared := slices.ContainsFunc(p.Apps, func(app string) bool { return slices.Contains(k.Found.Apps, app) })
	return shared && p.Name != k.Found.Name && (p.Key == k.Found.Key || isAddress(p.Key) && isAddress(k.Found.Key))
}

// isAddress reports whether a recipe counts by the address alone.
func isAddress(recipe string) bool {
	return (recipe == "ip" || strings.HasPrefix(recipe, "ip/")) && !strings.Contains(recipe, "+")
}

func looksLikeAddress(key string) bool {
	_, err := netip.ParseAddr(strings.TrimSpace(key))
	_, err2 := netip.ParsePrefix(strings.TrimSpace(key))
	return err == nil || err2 == nil
}
