package e2e

// switchTo changes the mode of the policy that the page is of in its menu, for some hours unless
// they are "".
func (b *tab) switchTo(mode, hours string) {
	b.t.Helper()
	b.steps++
	b.do(b.hit(`//summary[starts-with(normalize-space(),"Mode:")]`))
	b.tick(mode)
	if hours != "" {
		b.fill("For so many hours, and then back", hours)
	}
	b.press("Change the mode")
}

// changeSafely changes the mode of a policy, takes the change back, and is asked before the policy
// is turned off.
func (j *journey) changeSafely() {
	b := j.tab
	b.navigate(j.url("/policies/search"))
	j.fleet.follow("enforcement", func() { b.switchTo("In force", "") })
	b.reads("The mode was changed.", "Mode: in force")
	j.fleet.follow("an undo", func() { b.press("Undo the change of search") })
	b.reads("The change was undone.")

	b.switchTo("Off", "")
	b.reads("Turn off the policy search?", "From now on the instances of shop do not apply it: it refuses no request, and counts none.",
		"It is in shadow. In the last hour it would have refused 0 of 0 requests.")
	j.fits(b)
	b.press("Leave it as it is")
	b.reads("Mode: in shadow")
}

// pause turns a policy off for some hours, and lets it stay so. Then it is enforced.
func (j *journey) pause() {
	b := j.tab

	b.switchTo("Off", "3")
	b.reads("From now, for 3 hours, the instances of shop do not apply it")
	j.fleet.follow("off for some hours", func() { b.press("Turn it off") })
	b.reads("The mode was changed, and goes back by itself.", "It is off until",
		"Then it is in shadow again by itself, as admin has planned.")
	j.fits(b)

	b.press("Let it stay off")
	b.reads("The policy stays as it is.", "Mode: off")
	j.fleet.follow("enforcement", func() { b.switchTo("In force", "") })
	b.reads("The mode was changed.", "Mode: in force")
}

// restore deletes a policy and restores it. Then a key is looked up under both policies.
func (j *journey) restore() {
	b := j.tab
	b.do(b.hit(`//summary[contains(.,"More about search")]`))
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
	b.fill("Key or address", "127.0.0.1")
	b.press("Show")
	b.reads("visitors 127.0.0.1 5 of 5, 0 left", "search 127.0.0.1 0 of 50, 50 left")
	j.fits(b)

	// The row leads to its policy, and that to its keys.
	b.press("search")
	b.press("All on Keys")
	b.reads("Refused now")
}

// withoutRedis changes a policy while Redis is away.
func (j *journey) withoutRedis() {
	b := j.tab

	j.redis.Kill()
	b.navigate(j.url("/policies/visitors"))
	b.reads("Redis does not answer")

	b.switchTo("In shadow", "")
	b.reads("The mode was changed.", "Redis has not answered since",
		"changes are saved and come into force when it is back.")

	// What was saved without Redis is in force as soon as Redis is back.
	before := j.fleet.counts()
	j.redis.Restart()

	b.until("the banner is gone", func() bool { return eval[bool](b, `!document.querySelector("#banner .notice")`) })
	for i, s := range j.fleet.shops {
		s.await(before[i], inForce)
	}
	j.green(b) // by itself
}
