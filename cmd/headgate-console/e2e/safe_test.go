package e2e

import "time"

// changeSafely changes the mode of a policy, takes the change back, and is asked before the policy
// is turned off.
func (j *journey) changeSafely() {
	b := j.tab
	b.navigate(j.url("/policies/search"))
	j.fleet.follow("enforcement", func() { b.press("Enforce") })
	b.reads("The mode was changed.")
	j.fleet.follow("an undo", func() { b.press("Undo the change of search") })
	b.reads("The change was undone.")

	b.press("Off")
	b.reads("Turn off the policy search?", "From now on the instances of shop do not apply it: it refuses no request, and counts none.",
		"It is in shadow. In the last hour it would have refused 0 of 0 requests.")
	j.fits(b)
	b.press("Leave it as it is")
	b.reads("Nothing is scheduled.")
}

// schedule turns a policy off for a time, and has it enforced at a time. It cancels both, and then
// has it enforced in some seconds.
func (j *journey) schedule() {
	b := j.tab

	const summary = "Change the mode later, or for a time"
	b.unfold(summary)
	b.fill("for", "3")
	j.fits(b)

	b.press("Switch for this time")
	b.reads("From now, for 3 hours, the instances of shop do not apply it")
	j.fleet.follow("off for a time", func() { b.press("Turn it off") })
	b.reads("The change was made, and ends by itself.", "Mode: off → becomes shadow by admin")
	j.fits(b)

	b.press("All scheduled changes")
	b.reads("1 change waits", "Mode: off → becomes shadow admin Cancel the change of search")
	j.fits(b)

	b.press("Cancel the change of search")
	b.reads("The scheduled change was canceled.", "No change is scheduled.")

	b.navigate(j.url("/policies/search"))
	b.unfold(summary)
	b.choose("Switch to", "Enforce")

	// The page shows the instant in UTC, so a zone that were ignored would be an hour off.
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		j.t.Fatal(err)
	}
	year, month, day := time.Now().In(berlin).AddDate(0, 6, 0).Date() // a year ahead is the most
	at := time.Date(year, month, day, 9, 30, 0, 0, berlin)

	b.moment("From", at)
	b.fill("Time zone", "Europe/Berlin")
	b.press("Schedule it")
	b.reads("The change was scheduled.")

	b.press("All scheduled changes")
	if got := eval[string](b, `document.querySelector("tbody time").dateTime`); got != at.UTC().Format(time.RFC3339) {
		j.t.Errorf("the change is scheduled for %s, want %s", got, at.UTC().Format(time.RFC3339))
	}

	b.press("Cancel the change of search")
	b.reads("No change is scheduled.")

	j.expect()
}

// expect schedules a change for some seconds later, and waits until it was made. The field has
// minutes, so a script fills it in.
func (j *journey) expect() {
	b := j.tab
	b.navigate(j.url("/policies/search"))

	b.unfold("Change the mode later, or for a time")
	b.choose("Switch to", "Enforce")
	before := j.fleet.counts()

	// The seconds begin when the form is sent, however long it takes to press its button.
	eval[bool](b, `(() => { const at = document.getElementById("at");
		at.form.noValidate = true;
		at.form.addEventListener("submit", () => { at.value = new Date(Date.now() + 10000).toISOString().slice(0, 19); });
		return true;
	})()`)

	b.press("Schedule it")
	b.reads("The change was scheduled.")
	for i, s := range j.fleet.shops {
		s.await(before[i], inForce)
	}

	b.press("History")
	b.reads("Version 6 newest", "update by admin", "scheduled for ")
	b.press("search")
	b.reads("Nothing is scheduled.", "search enforce")
}

// restore deletes a policy and restores it. Then a key is looked up under both policies.
func (j *journey) restore() {
	b := j.tab
	b.press("Delete")
	b.fill("Comment", "no longer needed")
	j.fleet.follow("a deletion", func() { b.press("Delete the policy") })
	b.reads("The policy was deleted.")

	b.turnTo("Activity", "Deleted policies")
	b.reads("no longer needed")
	b.press("Restore search")
	b.reads("Restore the policy search?", "It comes back as it was in version 6, with its history.")

	j.fleet.follow("a restored policy", func() { b.press("Restore the policy") })
	b.reads("50/1m")

	b.press("Keys")
	b.fill("Key", "127.0.0.1")
	b.press("Look it up")
	b.reads("127.0.0.1 under each policy", "visitors 127.0.0.1 0 of 5 is over the limit",
		"search 127.0.0.1 50 of 50 is within the limit")
	j.fits(b)

	// The page of one policy has what the key has used under the others.
	b.press("search")
	b.reads("127.0.0.1 under search", "Under other policies", "visitors 127.0.0.1 0 of 5 is over the limit")
}

// withoutRedis changes a policy while Redis is away.
func (j *journey) withoutRedis() {
	b := j.tab

	j.redis.Kill()
	b.navigate(j.url("/policies/visitors"))
	b.reads("Redis does not answer")

	b.press("Shadow")
	b.reads("The mode was changed.", "Redis does not answer, since",
		"The newest changes are saved and not in force yet: they will be as soon as they can be published.")

	// What was saved without Redis is in force as soon as Redis is back.
	before := j.fleet.counts()
	j.redis.Restart()

	b.until("the banner is gone", func() bool { return !b.says("The newest changes are saved") })
	for i, s := range j.fleet.shops {
		s.await(before[i], inForce)
	}
	j.green(b) // by itself
}
