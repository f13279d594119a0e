package meter

// Late returns what a request does that has found the counts of its rule and then pauses.
func (c *RuleCounter) Late() func() {
	found := c.find()
	return func() { found.alone.Add(1) }
}
