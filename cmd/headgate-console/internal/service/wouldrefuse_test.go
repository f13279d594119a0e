package service

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// hour has a policy "p", and counts of an hour and more in which one caller came 300 times a minute
// and ten callers 10 times. The policy let 100 of the first through.
func hour(w *world, p policy.Policy) policy.Policy {
	w.t.Helper()
	p = w.create(p)
	w.clock.pass(2*time.Hour + 50*time.Second)

	over := events.Refused
	if p.Mode == policy.Shadow {
		over = events.ShadowRefused
	}
	counts := stats.Counts{events.Allowed: 200, events.Overruled: 9}
	counts[over] = 200
	for m := range 70 {
		at := w.clock.now().Add(-time.Duration(m) * time.Minute)
		for _, app := range p.Apps {
			w.must(w.Ledger().Record(w.t.Context(), app, stats.Minute{Start: at.Truncate(time.Minute),
				Policies: map[string]stats.Counts{"p": counts}}))
		}
	}

	w.fleet.keys = func(from time.Time, n int) (list []topkeys.Summary, err error) {
		for i := range n {
			at := from.Add(time.Duration(i) * time.Minute)
			s := topkeys.Summary{From: at, To: at.Add(time.Minute), Total: 400}
			s.Keys = append(s.Keys, topkeys.Key{Key: "heavy", Count: 300})
			for _, key := range "0123456789" {
				s.Keys = append(s.Keys, topkeys.Key{Key: string(key), Count: 10})
			}
			list = append(list, s)
		}
		return list, nil
	}
	return p
}

// wants compares what a changed policy would have refused.
func (w *world) wants(a Actor, p policy.Policy, change func(*policy.Policy), want string) {
	w.t.Helper()
	change(&p)
	got := ""
	answer := must(w.WouldRefuse(w.t.Context(), a, p))
	if answer != nil {
		got = answer.Sentence()
	}
	if got != want {
		w.t.Errorf("%s %s: %q, want %q", p.Limit, p.Mode, got, want)
	}
}

// listsOneKey leaves the first key alone in the lists of minutes from then on. Any other may have
// come 30 times in each. It returns the lists of before.
func (w *world) listsOneKey() (before func(time.Time, int) ([]topkeys.Summary, error)) {
	before = w.fleet.keys
	w.fleet.keys = func(from time.Time, n int) ([]topkeys.Summary, error) {
		list, err := before(from, n)
		for i := range list {
			list[i].Keys, list[i].Floor = list[i].Keys[:1], 30
		}
		return list, err
	}
	return before
}

func limited(text string) func(*policy.Policy) {
	return func(p *policy.Policy) { p.Limit = core.MustParseLimit(text) }
}

func TestWouldRefuse(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := hour(w, sample("p", "a"))
		const ofAll = " of 24,000 requests of the last hour, at least 1 caller. So far it has refused 12,000."

		// What does not refuse more says nothing.
		for _, text := range []string{"100/1m", "101/1m", "100/1m burst=200"} {
			w.wants(w.admin, p, limited(text), "")
		}
		w.wants(w.admin, p, func(p *policy.Policy) { p.Mode = policy.Off }, "")
		w.wants(w.admin, p, func(p *policy.Policy) { p.Mode, p.Limit.Quota = policy.Shadow, 5 }, "")
		w.wants(w.admin, p, func(p *policy.Policy) { p.Name, p.Limit.Quota = "other", 1 }, "")

		// The heavy caller gets a burst and 2,999 in the hour at most, and 50 in two minutes at
		// least.
		w.wants(w.admin, p, limited("50/1m"), "It would have refused between 14,951 and 16,500"+ofAll)
		w.wants(w.admin, p, limited("100/1m burst=20"), "It would have refused between 11,981 and 17,400"+ofAll)

		// A caller who comes 10 times in each of two minutes may find 15 of these let through.
		w.wants(w.admin, p, limited("15/1m"), "It would have refused between 17,086 and 19,050"+ofAll)
		w.wants(w.admin, p, limited("9/1m token-bucket"), "It would have refused between 17,961 and 21,030"+
			" of 24,000 requests of the last hour, at least 11 callers. So far it has refused 12,000.")

		// The windows are the minutes that are counted.
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"), "It would have refused 15,000"+ofAll)
		w.wants(w.admin, p, func(p *policy.Policy) {
			p.Limit, p.OnLimit = core.MustParseLimit("50/1m fixed-window aligned"), "degrade"
		}, "It would have given a cheaper answer to 15,000"+ofAll)
		w.wants(w.admin, p, func(p *policy.Policy) {
			p.Limit, p.Cost.Units = core.MustParseLimit("100/1m fixed-window aligned"), 2
		}, "It would have refused 15,000"+ofAll)

		// What bans refuse is at most all.
		w.wants(w.admin, p, func(p *policy.Policy) {
			p.Limit, p.Ban = core.MustParseLimit("50/1m"), core.MustParseBan("5/1m for 1m max 1h")
		}, "It would have refused at least 14,951"+ofAll)

		// The requests of a day tell more than those of an hour.
		w.wants(w.admin, p, limited("2000/1d"), "It would have refused between 15,917 and 23,109"+ofAll)
		w.wants(w.admin, p, limited("20000/1d fixed-window"),
			"What it would have refused in the last hour is not known: "+
				"the keys that are recorded leave it open.")

		// One caller has a limit of its own.
		w.wants(w.admin, p, func(p *policy.Policy) {
			limited("50/1m fixed-window aligned")(p)
			own := policy.Override{Limit: core.MustParseLimit("290/1m fixed-window aligned")}
			p.Overrides = map[string]policy.Override{"heavy": own}
		}, "")
	})
}

func TestWouldRefuseSaysWhatIsNotCounted(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := hour(w, sample("p", "a"))
		for why, change := range map[string]func(*policy.Policy){
			"requests were counted by another key":                                     func(p *policy.Policy) { p.Key = "user" },
			"other requests were counted":                                              func(p *policy.Policy) { p.Match.Path = "/a" },
			"other callers are let in or refused at once than those that were counted": func(p *policy.Policy) { p.Access.Deny.Keys = []string{"x"} },
			"requests over the limit wait, and the counts do not tell how long":        func(p *policy.Policy) { p.OnLimit, p.Limit.Quota = "wait 1s", 5 },
			"the counts do not tell how long requests take":                            limited("5 concurrent ttl=1m"),
			"answers give requests back, and the counts do not tell of which callers":  func(p *policy.Policy) { p.Refund, p.Limit.Quota = policy.Statuses{"304"}, 5 },
			"the counts do not tell what requests cost":                                func(p *policy.Policy) { p.Cost.Header, p.Limit.Quota = "X-Cost", 5 },
		} {
			w.wants(w.admin, p, change, "What it would have refused in the last hour is not known: "+why+".")
		}

		// Without lists only what was over the limit that is in force is known.
		const none = "What it would have refused in the last hour is not known: "
		keys := w.fleet.keys
		w.fleet.keys = func(from time.Time, n int) ([]topkeys.Summary, error) {
			return make([]topkeys.Summary, n), nil
		}
		w.wants(w.admin, p, limited("50/1m"), none+
			"instances record no keys: Top of their limiters, or top-keys of the gateway, is 0.")

		// One of two instances records none.
		w.fleet.keys = func(from time.Time, n int) ([]topkeys.Summary, error) {
			list, err := keys(from, n)
			for i := range list {
				list[i].Total, list[i].Keys = 300, list[i].Keys[:1]
			}
			return list, err
		}
		w.wants(w.admin, p, limited("50/1m"), "It would have refused between 14,951 and 22,500 of 24,000 requests "+
			"of the last hour, at least 1 caller. So far it has refused 12,000.")

		w.fleet.keys = func(time.Time, int) ([]topkeys.Summary, error) {
			return nil, errors.New("away")
		}
		w.wants(w.admin, p, limited("50/1m"), none+"Redis does not answer.")
		w.Service.fleet = nil
		w.wants(w.admin, p, limited("50/1m"), none+"the console was started without Redis.")
	})
}

// A policy in shadow has counted what it would have refused.
func TestWouldRefuseAfterShadow(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		shadow := sample("p", "a")
		shadow.Mode = policy.Shadow
		p := hour(w, shadow)
		enforce := func(share core.Share) func(*policy.Policy) {
			return func(p *policy.Policy) { p.Mode, p.Enforce = policy.Enforce, share }
		}

		w.wants(w.admin, p, enforce(0), "It would have refused 12,000 of 24,000 requests of the last hour, "+
			"at least 1 caller.")
		w.wants(w.admin, p, limited("50/1m"), "It would have refused between 14,951 and 16,500 of 24,000 requests "+
			"of the last hour, at least 1 caller.")

		// The heavy caller is among those that it is in force for, or not.
		w.wants(w.admin, p, enforce(heavyFrom(t)),
			"It would have refused between 11,901 and 12,000 of 24,000 requests "+
				"of the last hour, at least 1 caller.")
		w.wants(w.admin, p, enforce(heavyFrom(t)-1), "It would have refused none of 24,000 requests of the last hour.")

		w.fleet.keys = func(from time.Time, n int) ([]topkeys.Summary, error) {
			return make([]topkeys.Summary, n), nil
		}
		w.wants(w.admin, p, enforce(0), "It would have refused 12,000 of 24,000 requests of the last hour.")
	})
}

// heavyFrom returns the first share of the keys of p that the heavy caller is among.
func heavyFrom(t *testing.T) core.Share {
	for s := core.Share(1); s <= core.Whole; s++ {
		if s.Has("p", "heavy") {
			return s
		}
	}
	t.Fatal("it is in no share")
	return 0
}

// Only what was counted as now counts, of what the actor may know.
func TestWouldRefuseOfAPart(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := hour(w, sample("p", "a", "b"))
		viewer := w.person("ann", map[string]Role{"a": Viewer})
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"),
			"It would have refused between 30,000 and 33,000 of "+
				"48,000 requests of the last hour, at least 1 caller. So far it has refused 24,000.")
		w.wants(viewer, p, limited("50/1m fixed-window aligned"), "It would have refused at least 15,000 of "+
			"24,000 requests of the last hour, at least 1 caller. So far it has refused 12,000.")
		stranger := w.person("bob", map[string]Role{"c": Owner})
		w.wants(stranger, p, limited("1/1m"), "")

		// The key changed 20 minutes ago.
		w.clock.pass(-20 * time.Minute)
		p.Key = "user"
		p = must(w.UpdatePolicy(t.Context(), w.admin, p))
		w.clock.pass(20 * time.Minute)
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"), "It would have refused between 7,000 and 7,700 of "+
			"11,200 requests of the last 14 minutes, at least 1 caller. So far it has refused 5,600.")
	})
}

// TestWouldRefuseIsQuick asks about one of 10,000 policies, of which 200 instances have recorded
// 800 keys in each minute.
func TestWouldRefuseIsQuick(t *testing.T) {
	test.Long(t, "it writes ten thousand policies")
	everyEngineOnDisk(t, func(t *testing.T, w *world) {
		w.fill()
		w.must(w.DeletePolicy(t.Context(), w.admin, "policy-00000", 1)) // makes room
		p := hour(w, sample("p", "a"))
		w.fleet.keys = func(from time.Time, n int) (list []topkeys.Summary, err error) {
			for i := range n {
				at := from.Add(time.Duration(i) * time.Minute)
				s := topkeys.Summary{From: at, To: at.Add(time.Minute), Total: 16_000}
				for k := range 800 {
					s.Keys = append(s.Keys, topkeys.Key{Key: fmt.Sprint("203.0.113.", k), Count: 20})
				}
				list = append(list, s)
			}
			return list, nil
		}

		p.Limit.Quota = 10
		took := median(t, func() error { _, err := w.WouldRefuse(t.Context(), w.admin, p); return err })
		test.AtMost(t, "what a policy would have refused", took, quick)
	})
}

// Overrides beside the policy hold for their keys whatever the limit becomes, and the others are as
// without them.
func TestWouldRefuseKnowsOverrides(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		first := sample("p", "a")
		first.Key, first.Limit = "user", core.MustParseLimit("100/1m fixed-window aligned")
		p := hour(w, first)
		const ofAll = " of 24,000 requests of the last hour, at least 1 caller. So far it has refused 12,000."
		fifty, five := limited("50/1m fixed-window aligned"), limited("5/1m fixed-window aligned")
		w.wants(w.admin, p, fifty, "It would have refused 15,000"+ofAll)

		// Of the key, of a prefix, and one that ends.
		w.override("p", "heavy=290/1m fixed-window aligned")
		w.wants(w.admin, p, fifty, "")
		w.override("p", "heavy=120/1m fixed-window aligned")
		w.wants(w.admin, p, five, "It would have refused 13,800"+
			" of 24,000 requests of the last hour, at least 11 callers. So far it has refused 12,000.")
		w.override("p", "heavy=")
		w.override("p", "hea*=80/1m fixed-window aligned")
		w.wants(w.admin, p, fifty, "It would have refused 13,200"+ofAll)
		ends := w.clock.now().Add(time.Second).Format(time.RFC3339Nano)
		w.override("p", "heavy=40/1m fixed-window aligned until "+ends)
		w.wants(w.admin, p, fifty, "It would have refused 15,600"+ofAll)
		w.clock.pass(time.Second)
		w.wants(w.admin, p, fifty, "It would have refused 13,200"+ofAll)

		// A key of those that are not listed may have any of the limits.
		w.listsOneKey()
		w.wants(w.admin, p, fifty, "It would have refused 13,200"+ofAll)
		w.override("p", "someone=20/1m fixed-window aligned")
		w.wants(w.admin, p, fifty, "It would have refused between 13,200 and 19,200"+ofAll)
	})
}

// A key that is banned beside the policy would have got nothing, whatever the limit becomes.
func TestWouldRefuseKnowsBans(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		first := sample("p", "a")
		first.Key, first.Limit = "user", core.MustParseLimit("100/1m fixed-window aligned")
		p := hour(w, first)
		w.must(w.ImposeBan(t.Context(), w.admin, "p", "heavy", 2*time.Second))
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"),
			"It would have refused 18,000 of 24,000 requests of the last hour, at least 1 caller."+
				" So far it has refused 12,000.")
		w.wants(w.admin, p, limited("5/1m fixed-window aligned"),
			"It would have refused 21,000 of 24,000 requests of the last hour, at least 11 callers."+
				" So far it has refused 12,000.")

		// A key that is not listed may be the one that is banned.
		keys := w.listsOneKey()
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"), "It would have refused at least 18,000"+
			" of 24,000 requests of the last hour, at least 1 caller. So far it has refused 12,000.")

		w.clock.pass(3 * time.Second)
		w.fleet.keys = keys
		w.wants(w.admin, p, limited("50/1m fixed-window aligned"),
			"It would have refused 15,000 of 24,000 requests of the last hour, at least 1 caller."+
				" So far it has refused 12,000.")
	})
}

// What was counted before a ban was lifted is not what the policy would refuse now.
func TestWouldRefuseAfterABan(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		part := sample("p", "a")
		part.Key, part.Enforce = "user", core.Whole-1
		p := hour(w, part)
		now := w.clock.now()

		w.clock.pass(-20 * time.Minute)
		w.must(w.ImposeBan(t.Context(), w.admin, "p", "heavy", 15*time.Minute))
		w.clock.pass(10 * time.Minute)
		w.must(w.LiftBan(t.Context(), w.admin, "p", "heavy"))
		w.clock.pass(now.Sub(w.clock.now()))
		w.wants(w.admin, p, func(p *policy.Policy) { p.Enforce = 0 }, "It would have refused 1,200 of 2,400 requests"+
			" of the last 6 minutes, at least 1 caller. So far it has refused 1,200.")
	})
}

// Where only the share grows, what was counted under other overrides tells nothing of now.
func TestWouldRefuseAfterAChangeOfOverrides(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		shadow := sample("p", "a")
		shadow.Mode, shadow.Key = policy.Shadow, "user"
		p := hour(w, shadow)
		enforce := func(p *policy.Policy) { p.Mode = policy.Enforce }
		w.wants(w.admin, p, enforce, "It would have refused 12,000 of 24,000 requests of the last hour, at least 1 caller.")

		now := w.clock.now()
		w.clock.pass(-20 * time.Minute)
		w.override("p", "heavy=90/1m")
		w.override("p", "heavy=")
		w.override("p", "b=90/1m until "+now.Add(-10*time.Minute).Format(time.RFC3339Nano))
		w.clock.pass(now.Sub(w.clock.now()))
		w.wants(w.admin, p, enforce,
			"It would have refused 1,200 of 2,400 requests of the last 6 minutes, at least 1 caller.")
		w.override("p", "b=")
		w.wants(w.admin, p, enforce, "What it would have refused in the last hour is not known: until a few minutes ago "+
			"its requests were counted in another way.")
	})
}

// A limit of another algorithm leaves an override without effect: the key comes under the limit of
// all others, though that is higher than before.
func TestWouldRefuseWithoutAnOverrideThatNoLongerFits(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	first := sample("p", "a")
	first.Key, first.Limit = "user", core.MustParseLimit("20/1m")
	p := hour(w, first)
	higher := limited("30/1m fixed-window aligned")
	w.wants(w.admin, p, higher, "")
	w.override("p", "heavy=1000/1m")
	w.wants(w.admin, p, func(p *policy.Policy) { higher(p); p.Mode = policy.Shadow }, "")
	w.wants(w.admin, p, higher,
		"It would have refused 16,200 of 24,000 requests of the last hour, at least 1 caller. So far it has refused 12,000.")

	// More limits than are reckoned with.
	w.must(w.db.Update(t.Context(), func(tx *store.Tx) error {
		var list []store.Override
		for i := range maxLimits + 1 {
			text := fmt.Sprintf("%d/1m", i+1)
			list = append(list, store.Override{Policy: "p", Key: text, Text: text, Revision: int64(i + 10)})
		}
		return tx.InsertOverrides(list)
	}))
	w.wants(w.admin, p, limited("10/1m"), "What it would have refused in the last hour is not known: "+
		"single keys have more than 1,000 different limits beside it.")
}
