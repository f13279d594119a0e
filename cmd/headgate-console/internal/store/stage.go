package store

import (
	"log/slog"
	"sync"
	"time"
)

// stageInterval is how often a stage reminds by default.
const stageInterval = 10 * time.Second

// stage is what [Open] is doing. It is logged again from time to time, so that a long start
// is not silent.
type stage struct {
	logger *slog.Logger
	began  time.Time
	stop   chan struct{}
	done   chan struct{}

	mu   sync.Mutex
	what string // Guarded by mu.
}

// newStage returns a stage that reminds until end is called.
func newStage(logger *slog.Logger, every time.Duration) *stage {
	s := &stage{logger: logger, began: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	go s.remind(every)
	return s
}

// remind logs what is being done, again and again, until end is called.
func (s *stage) remind(every time.Duration) {
	defer close(s.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.logger.Info("the database is not ready yet", "waiting_for", s.doing(""),
				"since", time.Since(s.began).Round(time.Second))
		}
	}
}

// doing changes what is being done, unless what is "", and returns it.
func (s *stage) doing(what string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != "" {
		s.what = what
	}
	return s.what
}

func (s *stage) end() {
	close(s.stop)
	<-s.done
}
