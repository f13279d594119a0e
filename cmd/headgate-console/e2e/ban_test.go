package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// TestBanOfAnyKey bans a caller under a policy that bans no keys by itself, with a mouse, and lifts
// the ban with the keyboard alone.
func TestBanOfAnyKey(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	travel(t, "", []step{
		{"the one-time password opens the console and has to be changed", (*journey).signIn},
		{"an application is added", (*journey).addApp},
		{"a caller is banned from the page of keys, and another passes", (*journey).banCaller},
		{"the ban is lifted with the keyboard, and the caller passes again", (*journey).liftByKeyboard},
	})
}

// banSoon is within what time a ban or its end is in force in all instances.
const banSoon = 5 * time.Second

// The caller who is banned, and another.
const banned, other = "127.0.0.2", "127.0.0.3"

// callers counts how the requests from each address ended.
type callers map[string]map[fate]int

// fate is how a request ended.
type fate string

const (
	passes  fate = "it passes"
	refused fate = "a ban refuses it"
)

// banCaller creates a policy, has two callers use it, and bans one of them.
func (j *journey) banCaller() {
	b := j.tab
	c := callers{}
	j.callers = c

	// The policy has no bans of its own.
	b.press("Policies")
	b.press("Create the first")
	b.fill("Name", "visitors")
	b.fill("Requests", "900")
	b.choose("Unit of the period", "hour")
	b.unfold("+ burst, debt, exact window, calendar, at the same time")
	b.tick("Sliding log")
	b.tick("in force")
	j.fleet.follow("a new policy", func() { b.press("Create in force") })
	c.call(j, banned, passes, 4)
	c.call(j, other, passes, 2)

	// The key is looked up and banned from its menu.
	b.press("Keys")
	b.fill("Key or address", banned)
	b.press("Show")
	b.reads("visitors " + banned + " 4 of 900, 896 left now")
	b.do(b.hit(named("Actions on " + banned + " under visitors")))
	b.press("Ban for…")
	b.reads("Ban this key?", "Every request of the key will be refused under visitors, in all instances")
	b.fill("For", "2h")
	b.fill("Comment", "it reads the whole catalogue")

	// The ban holds in every instance, for this caller alone.
	began := time.Now()
	b.press("Ban the key")
	ended := time.Now()
	c.soon(j, "a ban", began, refused)
	b.reads("The key was banned.")
	c.call(j, banned, refused, 4)
	c.call(j, other, passes, 2)

	// The page of bans says until when, who has banned, and why. So does the page of the policy.
	b.press("Banned")
	b.reads(banned+" visitors banned until", "by admin", ": it reads the whole catalogue")
	until := eval[string](b, `document.querySelector("[data-head=Banned] time").dateTime`)
	end, err := time.Parse(time.RFC3339, until)
	if err != nil || end.Before(began.Add(2*time.Hour)) || end.After(ended.Add(2*time.Hour+time.Second)) {
		j.t.Errorf("a ban of two hours from %s on ends at %q", began.UTC(), until)
	}
	j.fits(b)
}

// liftByKeyboard ends the ban, and checks that the console shows what was counted.
func (j *journey) liftByKeyboard() {
	b, c := j.tab, j.callers
	b.keyboard = true

	b.do(b.hit(named("Actions on " + banned + " under visitors")))
	b.press("Lift the ban…")
	b.reads("Lift the ban of this key?")
	began := time.Now()
	b.press("Lift the ban")
	c.soon(j, "the end of a ban", began, passes)
	b.reads("The ban was lifted.", "No key of shop is banned.")
	c.call(j, banned, passes, 4)
	c.call(j, other, passes, 2)

	// What the ban refused has used nothing of the limit.
	used := c[banned][passes]
	b.fill("Key or address", banned)
	b.press("Show")
	b.reads(fmt.Sprintf("visitors %s %d of 900, %d left", banned, used, 900-used))

	b.press("Traffic")
	b.shows("Passed", strconv.Itoa(used+c[other][passes]))
	b.shows("Refused", strconv.Itoa(c[banned][refused]))
	if c[other][passes] != 6 || c[other][refused] != 0 || c[banned][refused] < 6 {
		j.t.Errorf("the callers have %v", c)
	}
}

// soon sends requests of the caller to each instance until the first one ends so.
func (c callers) soon(j *journey, what string, began time.Time, want fate) {
	j.t.Helper()
	for i, s := range j.fleet.shops {
		if !eventually(j.t, began.Add(banSoon), func() bool { return c.send(j, banned, i) == want }) {
			j.t.Errorf("%s is not in force in %s within %s", what, s.name, banSoon)
		}
	}
	test.AtMost(j.t, what+" in force in all instances", time.Since(began), banSoon)
}

// call sends n requests from an address to the instances in turn, all of which have to end so.
func (c callers) call(j *journey, from string, want fate, n int) {
	j.t.Helper()
	for i := range n {
		if got := c.send(j, from, i); got != want {
			j.t.Errorf("request %d of %s: %s, want: %s", i+1, from, got, want)
		}
	}
}

// send sends a request from an address to an instance, counts it, and returns how it ended.
func (c callers) send(j *journey, from string, instance int) fate {
	j.t.Helper()

	// Each request has a connection of its own, from the caller's address.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: patience}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + j.fleet.shops[instance%len(j.fleet.shops)].address + "/")
	if err != nil {
		j.t.Fatal(err)
	}

	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		j.t.Fatal(err)
	}

	// A limit refuses with the same status, and another problem.
	got := fate(r.Status)
	switch {
	case r.StatusCode == http.StatusOK:
		got = passes
	case r.StatusCode == http.StatusTooManyRequests && strings.Contains(string(text), "abnormal-usage-detected"):
		got = refused
	}

	if c[from] == nil {
		c[from] = map[fate]int{}
	}
	c[from][got]++
	return got
}
