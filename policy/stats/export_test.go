package stats

import "time"

// SetWall has the recorder believe that its clock is off by d until it knows the server's.
func (r *Recorder) SetWall(d time.Duration) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.wall = r.wall.Add(d)
}

// Pause returns the time until the next write.
func (r *Recorder) Pause() time.Duration {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.pause
}
