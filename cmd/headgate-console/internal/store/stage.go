package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
)

// stageInterval is how often a stage reminds by default.
const stageInterval = 10 * time.Second

// stage is what [Open] is doing. It is logged again from time to time until Close is called, so
// that a long start is not silent.
type stage struct {
	*worker.Worker
	logger *slog.Logger
	began  time.Time
	what   atomic.Value // string
}

func newStage(logger *slog.Logger, every time.Duration) *stage {
	s := &stage{logger: logger, began: time.Now()}
	s.Worker = worker.Start(worker.Task{Run: func(context.Context) (time.Duration, error) {
		if since := time.Since(s.began); since >= every {
			logger.Info("the database is not ready yet", "waiting_for", s.what.Load(),
				"since", since.Round(time.Second))
		}
		return every, nil
	}})
	return s
}

// doing changes what is being done.
func (s *stage) doing(what string) { s.what.Store(what) }
