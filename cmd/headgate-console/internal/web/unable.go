package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

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
