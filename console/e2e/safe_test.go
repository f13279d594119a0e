package e2e

// changeSafely turns a policy off and on again by the ways that need no second look: undo, and a
// change that ends by itself.
func (j *journey) changeSafely() {
	b := j.tab
	b.navigate(j.url("/policies/search"))
	j.fleet.follow("enforcement", func() { b.press("Enforce") })
	b.reads("The mode was changed.")
	j.fleet.follow("an undo", func() { b.press("Undo the change of search") })
	b.reads("The change was undone.")

	b.press("Off")
	b.reads("Turn off the policy search?", "do not apply it", "In the last hour it")
	j.fits(b)
	b.press("Leave it as it is")
	b.reads("Nothing is scheduled.")

	eval[bool](b, `document.querySelector("#later ~ details > summary").click(), true`)
	b.fill("for", "3")
	j.fits(b)
	b.press("Switch for this time")
	b.reads("now, for 3 hours")
	j.fleet.follow("off for a time", func() { b.press("Turn it off") })
	b.reads("The change was made, and ends by itself.", "becomes", "Mode")
	j.fits(b)
	b.press("All scheduled changes")
	b.reads("1 change waits", "search")
	j.fits(b)
	b.press("Cancel the change of search")
	b.reads("No change is scheduled.")

	b.navigate(j.url("/policies/search/delete"))
	b.fill("Comment", "no longer needed")
	j.fleet.follow("a deletion", func() { b.press("Delete the policy") })
	b.reads("The policy was deleted.")
	b.press("Deleted policies")
	b.reads("no longer needed")
	b.press("Restore search")
	j.fleet.follow("a restored policy", func() { b.press("Restore the policy") })
	b.press("History")
	b.press("Compare")
	b.reads("Compare versions of search")
	j.fits(b)
}
