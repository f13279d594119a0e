// This file opens the access log anew when the process is told to.

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// followHangups opens the access log anew at each SIGHUP until the context ends. Without a log in a
// file the signal ends the process, as it does by default.
func (g *gateway) followHangups(ctx context.Context) {
	if g.requests.Log() == nil {
		return
	}

	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	go func() {
		defer signal.Stop(received)
		for {
			select {
			case <-received:
			case <-ctx.Done():
				return
			}

			// A folder that is gone leaves the former file in use.
			if err := g.requests.Log().Reopen(); err != nil {
				g.logger.Error("the access log cannot be opened anew, so the former goes on", "error", err.Error())
				continue
			}
			g.logger.Info("the access log was opened anew")
		}
	}()
}
