package stats

import "time"

// Pause returns the time until the next write.
func (r *Recorder) Pause() time.Duration {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.pause
}
