package meter

import "sync/atomic"

// Cell is one series of a counter.
type Cell struct {
	Instrument *Instrument
	Values     []string // of the attributes

	// Attached is what the package that reads the cell keeps with it.
	Attached atomic.Value

	n        atomic.Uint64
	showZero bool
}

// init makes the zero value a series of the instrument.
func (c *Cell) init(i *Instrument, showZero bool, values ...string) {
	c.Instrument, c.showZero, c.Values = i, showZero, values
}

// Add counts n.
func (c *Cell) Add(n uint64) { c.n.Add(n) }

// Value returns what was counted so far.
func (c *Cell) Value() uint64 { return c.n.Load() }

// Take returns what was counted since the last Take.
func (c *Cell) Take() uint64 { return c.n.Swap(0) }

// ShowsZero reports whether the series is shown before anything is counted, so that its
// first count is an increase.
func (c *Cell) ShowsZero() bool { return c.showZero }
