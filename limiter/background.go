package limiter

import (
	"sync"
	"time"
)

// maxBackground is the maximum number of calls of a limiter in the background.
const maxBackground = 1024

// background runs the calls of the store that no answer waits for. A nil background
// runs each before run returns.
type background struct {
	slots chan struct{} // one for each call in progress
	once  sync.Once
}

func newBackground() *background {
	return &background{slots: make(chan struct{}, maxBackground)}
}

// run calls f in a goroutine, or itself if maxBackground calls are in progress or after
// end. f must not panic.
func (b *background) run(f func()) {
	if b == nil {
		f()
		return
	}
	select {
	case b.slots <- struct{}{}:
		go func() {
			f()
			<-b.slots
		}()
	default:
		f()
	}
}

// end waits until no call is in progress, but at most for d. It keeps all slots that it
// gets, so that run then calls f itself. Only the first end waits.
func (b *background) end(d time.Duration) {
	if b == nil {
		return
	}
	b.once.Do(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		for range maxBackground {
			select {
			case b.slots <- struct{}{}:
			case <-timer.C:
				return
			}
		}
	})
}
