package stats

import "time"

// Pause returns the time until the next write.
func (r *Recorder) Pause() time.Duration {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.pause
}

// Overdue makes the next write publish the top keys.
func (r *Recorder) Overdue() {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.top.due = time.Time{}
}

const (
	MaxTopBytes = maxTopBytes
	TopBudget   = topBudget
	MaxFields   = maxFields
)
