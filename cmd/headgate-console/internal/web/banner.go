package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// banner says why the newest policies may not be in force.
type banner struct {
	Failing bool
	Away    bool      // Redis does not answer
	Since   time.Time // of the failure
	Pending bool      // changes are not published yet
	For     string    // how long it has failed
	Reason  string    // what is wrong and what to do, unless Redis does not answer
	Foreign string    // why the published policies are not those of this database, or ""
	Manager bool      // may take over
	Asking  bool      // the page is about that
}

// bannerOf returns the state of publishing, or nil if all is well. It asks the database, and not
// Redis, whose state the publisher knows.
func (r *request) bannerOf() (*banner, error) {
	if r.Publishing == nil {
		return nil, nil
	}
	work, err := r.Service.Publishing(r.req.Context(), r.actor)
	if err != nil {
		return nil, err
	}

	status := r.Publishing()
	b := &banner{Failing: status.Err != nil, Since: status.Since}
	b.Pending = work.Published < work.Version || work.Overrides
	if !b.Failing && !b.Pending {
		return nil, nil
	}

	b.Manager, b.Asking = r.access.CanManage(), r.req.URL.Path == "/takeover"
	if e := status.Foreign(); e != nil {
		b.Foreign = e.Reason()
		return b, nil
	}
	if !b.Failing {
		return b, nil
	}
	b.For = roughly(r.Clock().Sub(status.Since))
	if b.Away = noAnswer(status.Err); !b.Away {
		b.Reason = refusal(status.Err)
	}
	return b, nil
}

// noAnswer reports whether an error means that a server does not answer.
func noAnswer(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		redis.HasErrorPrefix(err, "LOADING")
}

// refusal says in plain words why Redis does not take the policies, and what to do. The error
// itself is in the log: it may name hosts.
func refusal(err error) string {
	for prefix, words := range vocabulary.Redis {
		if redis.HasErrorPrefix(err, prefix) {
			return words
		}
	}
	return "The log of the console has the reason."
}

// roughly returns a time in its largest unit.
func roughly(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= u.size {
			return digits(int64(d/u.size)) + " " + u.name
		}
	}
	return digits(int64(max(0, d)/time.Second)) + " s"
}

// addBanner adds the banner to a frame. A page whose answer is an error of the console has none,
// because the database that would be asked is often the reason.
func (r *request) addBanner(f *frame, status int) {
	if !f.Ready || status >= http.StatusInternalServerError {
		return
	}
	var err error
	if f.Banner, err = r.bannerOf(); err != nil {
		r.Logger.WarnContext(r.req.Context(), "the state of publishing cannot be read", "error", err)
	}
}

// liveBanner answers with the banner, which the script asks for until there is none.
func liveBanner(r *request) error {
	b, err := r.bannerOf()
	if err != nil {
		return err
	}
	return r.fragment("list", "banner", b)
}

// fleetTime bounds what a page waits for the instances that are not its subject. The console reads
// them once a second, so only a Redis that is slow takes longer. Tests give a busy machine more.
var fleetTime = 300 * time.Millisecond

// unable is what instances do not carry out, and how much more there is.
type unable struct {
	List []service.Unable
	More int
}

// Any reports whether there is something to say.
func (u unable) Any() bool { return len(u.List)+u.More > 0 }

// concerns is the body of a page that is about a policy.
type concerns interface{ subject() policy.Policy }

func (p policyDetail) subject() policy.Policy { return p.Policy }

// unableOf returns what instances do not carry out, and of policies also what they will not. It is
// nothing while Redis does not answer, of which the other banner tells.
func (r *request) unableOf(of ...policy.Policy) (u unable) {
	if r.Publishing != nil && r.Publishing().Err != nil && r.Publishing().Foreign() == nil {
		return u
	}
	ctx, cancel := context.WithTimeout(r.req.Context(), fleetTime)
	defer cancel()

	var err error
	if u.List, u.More, err = r.Service.Unable(ctx, r.actor, of...); err != nil && !errors.Is(err, service.ErrNoFleet) {
		r.Logger.WarnContext(r.req.Context(), "what the instances do not carry out cannot be read", "error", err)
	}
	return u
}

// addUnable adds what instances do not carry out to a frame, as addBanner does with its banner.
func (r *request) addUnable(f *frame, status int) {
	if !f.Ready || status >= http.StatusInternalServerError {
		return
	}
	var of []policy.Policy
	if c, ok := f.Body.(concerns); ok {
		of, f.About = append(of, c.subject()), c.subject().Name
	}
	f.Unable = r.unableOf(of...)
}

// liveUnable answers with what instances do not carry out, which the script asks for after a
// change.
func liveUnable(r *request) error {
	var of []policy.Policy
	if name := r.query("of"); name != "" {
		p, err := r.Service.Policy(r.req.Context(), r.actor, name)
		if err != nil && !errors.Is(err, service.ErrNotFound) {
			return err
		}
		of = append(of, p)
	}
	return r.fragment("list", "unable", r.unableOf(of...))
}

// lacks says what no instance of the chosen applications can carry out: why, by what of the form it
// is. What is not known to be impossible is not in it.
func (r *request) lacks(apps []string) map[string]string {
	ctx, cancel := context.WithTimeout(r.req.Context(), fleetTime)
	defer cancel()
	all, err := r.Service.Instances(ctx, r.actor, "")
	if err != nil {
		return nil // the form works without Redis too
	}

	lacks := map[string]string{}
	note := func(what string, p policy.Policy) {
		if why := service.Lacking(all, apps, p); why != "" {
			lacks[what] = why
		}
	}
	for _, c := range recipes() {
		note(c.Value, policy.Policy{Key: c.Value})
	}
	networks := policy.Policy{Key: "ip"}
	networks.Access.Deny.Networks = []string{"192.0.2.0/24"}
	note("allow_networks", networks)
	note("deny_networks", networks)

	// Plans are out of reach if no instance has a function that knows those of callers.
	plans := policy.Policy{Key: "ip", Plans: map[string]core.Limit{}, PlanBy: "user"}
	if !slices.ContainsFunc(all, func(i policy.Instance) bool {
		return slices.Contains(apps, i.App) && i.Can != nil && len(i.Can.Plans) > 0
	}) {
		note("plans", plans)
		note("plan_by", plans)
	}
	return lacks
}

// maxLost is how many names of policies a take-over lists.
const maxLost = 50

// takeoverPage asks before the policies of this database replace those of another one.
func takeoverPage(r *request) error {
	t, err := r.takeover()
	if err != nil {
		return err
	}
	if t.Version == "" {
		return r.seeOther("/", "")
	}
	c := r.asks("takeover", "", "/", hidden{"version", publish.Digest(t.Version)})
	c.Consequences, c.Danger = whatIsLost(t), !t.Keeps()
	return r.confirm(c)
}

// takeOver has the policies published over those that the user has seen, and over no others.
func takeOver(r *request) error {
	t, err := r.takeover()
	if err != nil {
		return err
	}
	if !r.confirmed() || t.Version == "" || publish.Digest(t.Version) != r.field("version") {
		return takeoverPage(r)
	}

	what := strings.Join(whatIsLost(t), " ")
	return after(r.Service.TakeOver(r.req.Context(), r.actor, t.Version, what), nil, r.to("/", "takeover"))
}

// takeover returns what a take-over would replace, or nothing if the policies in Redis are those
// of this database. Only administrators learn it.
func (r *request) takeover() (publish.Takeover, error) {
	if !r.access.CanManage() {
		return publish.Takeover{}, r.Service.Refuse(r.req.Context(), r.actor, "publishing.takeover", "publishing",
			"it takes an administrator")
	}
	if r.Publishing == nil || r.Takeover == nil {
		return publish.Takeover{}, service.ErrNotFound
	}
	if r.Publishing().Foreign() == nil {
		return publish.Takeover{}, nil
	}
	return r.Takeover(r.req.Context())
}

// whatIsLost says what becomes of what is published.
func whatIsLost(t publish.Takeover) (texts []string) {
	if t.Unknown {
		texts = []string{"The policies in Redis cannot be read here, and are lost: " +
			"a newer console, or another program, may have published them."}
	}
	if len(t.Gone) > 0 {
		texts = append(texts, fmt.Sprintf("%s in Redis and not in this database, and will not apply any more: %s.",
			plural(int64(len(t.Gone)), "policy is", "policies are"), firstOf(t.Gone, maxLost)))
	}
	if len(t.Changed) > 0 {
		texts = append(texts, fmt.Sprintf("%s otherwise in this database, and will apply as they are here: %s.",
			plural(int64(len(t.Changed)), "policy is", "policies are"), firstOf(t.Changed, maxLost)))
	}
	switch {
	case t.Keeps():
		texts = []string{"This database has all policies, overrides and bans that are in Redis, " +
			"as they are there: none is lost."}
	case texts == nil:
		texts = []string{"This database has all policies that are in Redis, as they are there."}
	}
	texts = append(texts, overridesLost(t)...)
	return append(texts, "A console of the other database is refused from then on, and says so. "+
		"A backup that was restored, and a database that was moved, take over in this way.")
}

// overridesLost says what becomes of the overrides and bans that are published.
func overridesLost(t publish.Takeover) (texts []string) {
	say := func(text string, bans, overrides int) {
		var list []string
		if bans > 0 {
			list = append(list, plural(int64(bans), "ban", "bans"))
		}
		if overrides > 0 {
			list = append(list, plural(int64(overrides), "override", "overrides"))
		}
		if list != nil {
			texts = append(texts, text+": "+strings.Join(list, " and ")+".")
		}
	}
	say("In Redis and not in this database, and will not apply any more", t.Bans.Gone, t.Overrides.Gone)
	say("Otherwise in this database, and will apply as it has them", t.Bans.Changed, t.Overrides.Changed)
	say("In this database as in Redis, and stay", t.Bans.Stay, t.Overrides.Stay)

	if t.Uncounted {
		texts = append(texts, "Redis may have more overrides and bans than are counted here. "+
			"Those that are not in this database are lost.")
	}
	return texts
}
