package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
)

// stageInterval is when a stage reminds for the first time by default.
const stageInterval = 10 * time.Second

// stage is what [Open] is doing. It is logged again from time to time until Close is called, ever
// more rarely, so that a long start is not silent.
type stage struct {
	*worker.Worker
	logger *slog.Logger
	began  time.Time
	what   atomic.Value // string
}

func newStage(logger *slog.Logger, first time.Duration) *stage {
	s := &stage{logger: logger, began: time.Now()}
	s.Worker = worker.Start(worker.Task{Run: func(context.Context) (time.Duration, error) {
		since := time.Since(s.began)
		if since >= first {
			logger.Info("the database is not ready yet", "waiting_for", s.what.Load(),
				"since", since.Round(time.Second))
		}
		return max(first, since), nil // twice as long each time
	}})
	return s
}

// doing changes what is being done.
func (s *stage) doing(what string) { s.what.Store(what) }
