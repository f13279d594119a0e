package service

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

const (
	// maxUnable is how many of them are returned, and maxNamed how many instances each names.
	maxUnable = 10
	maxNamed  = 3

	maxUnableText = 256 // bytes of a reason, and of the name of an instance
)

// Unable is what instances of an application do not carry out as the database has it.
type Unable struct {
	App       string
	Policy    string // "" for all newer changes of the application
	Version   int64  // of the policy, that is not in force
	Reason    string
	Kept      bool  // the version InForce of the policy stays in force
	InForce   int64 // see Kept
	Foretold  bool  // the instances have not reported it, and what they can do says so
	Instances []string
	Further   int // instances that are not named
}

// Where names the instances.
func (u Unable) Where() string {
	text := strings.Join(u.Instances, ", ")
	if u.Further > 0 {
		text += fmt.Sprintf(" and %d more", u.Further)
	}
	return text
}

// String says all of it in one line of text.
func (u Unable) String() string {
	stays := ""
	switch {
	case u.Policy == "":
		return fmt.Sprintf("no newer change of %s is in force in %s: %s", u.App, u.Where(), u.Reason)
	case u.Kept:
		stays = fmt.Sprintf(", and version %d stays", u.InForce)
	}
	return fmt.Sprintf("version %d of %s is not in force in %s (%s)%s: %s",
		u.Version, u.Policy, u.Where(), u.App, stays, u.Reason)
}

// Unable returns what running instances do not carry out, of the applications in which the actor
// has a role, and how much more there is. Of the policies that are given, it also says what
// instances will not carry out that have not reported it yet. The error is as of Instances.
func (s *Service) Unable(ctx context.Context, a Actor, saved ...policy.Policy) (list []Unable, more int, err error) {
	all, err := s.Instances(ctx, a, "")
	if err != nil {
		return nil, 0, err
	}
	for _, i := range all {
		for _, u := range unableOf(i, saved) {
			if list = u.join(list, i); len(list) > maxUnable {
				list, more = list[:maxUnable], more+1
			}
		}
		more += i.MoreLeftOut
	}
	return list, more, nil
}

// unableOf returns what one instance does not carry out.
func unableOf(i policy.Instance, saved []policy.Policy) (list []Unable) {
	if i.Refused != "" {
		list = append(list, Unable{App: i.App, Reason: sanitize(i.Error, maxUnableText)})
	}
	for _, l := range i.LeftOut {
		list = append(list, Unable{App: i.App, Policy: l.Policy, Version: l.Version,
			Reason: sanitize(l.Reason, maxUnableText), Kept: l.Kept, InForce: l.InForce})
	}

	for n := range saved {
		p := &saved[n]
		same := func(u Unable) bool { return u.Policy == p.Name && u.Version == p.Version }
		if slices.ContainsFunc(list, same) || i.Can == nil || p.Mode == policy.Off || !slices.Contains(p.Apps, i.App) {
			continue
		}
		if err := i.Can.Check(p); err != nil {
			list = append(list, Unable{App: i.App, Policy: p.Name, Version: p.Version, Foretold: true,
				Reason: sanitize(mistakeOf(err), maxUnableText)})
		}
	}
	return list
}

// join adds what an instance does not carry out to the same of others.
func (u Unable) join(list []Unable, i policy.Instance) []Unable {
	at := slices.IndexFunc(list, func(o Unable) bool {
		return o.App == u.App && o.Policy == u.Policy && o.Version == u.Version && o.Reason == u.Reason &&
			o.Kept == u.Kept && o.InForce == u.InForce
	})
	if at < 0 {
		at, list = len(list), append(list, u)
	}
	if o := &list[at]; len(o.Instances) < maxNamed {
		o.Instances = append(o.Instances, sanitize(i.ID, maxUnableText))
	} else {
		o.Further++
	}
	return list
}

// mistakeOf returns the text of a mistake in a policy without the policy's name.
func mistakeOf(err error) string {
	faults := FaultsOf(err)
	texts := make([]string, len(faults))
	for n, f := range faults {
		texts[n] = f.Field + ": " + f.Message
	}
	return strings.Join(texts, "; ")
}

// Lacking returns why no running instance of one of the applications can carry out a valid policy,
// or "". Of an application without instances, and of instances that do not say what they can do,
// nothing is known.
func Lacking(all []policy.Instance, apps []string, p policy.Policy) string {
	for _, app := range apps {
		reason := ""
		able := false
		for _, i := range all {
			if i.App != app {
				continue
			}
			if i.Can == nil {
				able = true
				break
			}
			err := i.Can.Check(&p)
			if able = err == nil; able {
				break
			}
			reason = mistakeOf(err)
		}
		if !able && reason != "" {
			return "No instance of " + app + " can do this: " + sanitize(reason, maxUnableText)
		}
	}
	return ""
}
