// Package server listens, bounds what clients can take, and ends without breaking off requests.
// [Run] does so until its context ends.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Service answers on a listener until it is shut down.
type Service interface {
	// Serve answers until Shutdown, and then returns any error or none. It closes the
	// listener.
	Serve(l net.Listener) error

	// Shutdown accepts nothing more and waits for what is under way. If that has not
	// ended when ctx does, Shutdown breaks it off and returns an error.
	Shutdown(ctx context.Context) error
}

// Port is an address and the service that answers there.
type Port struct {
	Name    string // for the log, such as "proxy"
	Address string // host:port
	TLS     bool   // whether the service speaks TLS, for the log
	Service Service

	// Connections is the number of open connections. Others wait to be accepted. 0 is any.
	Connections int

	// Admin keeps the port open until all others are closed.
	Admin bool
}

// Drain is what has to end beside the services, such as the engine.
type Drain interface {
	Shutdown(ctx context.Context) error
}

// Options configure Run.
type Options struct {
	Ports []Port

	// Drain, unless nil, is shut down together with the ports.
	Drain Drain

	// Health is told when the shutdown begins.
	Health *Health

	// Times is called when the shutdown begins. The delay is the time between that and the end of
	// the listeners, in which a load balancer can learn of it. The time-out bounds the whole
	// shutdown.
	Times func() (delay, timeout time.Duration)

	// Listen is net.Listen for TCP unless a test sets it.
	Listen func(address string) (net.Listener, error)

	// Started, unless nil, is called once all ports listen, with their addresses.
	Started func(addresses []string)

	Logger *slog.Logger
}

// ErrCutOff means that requests were broken off, because they did not end before the
// time-out or because a second signal came.
var ErrCutOff = errors.New("requests were broken off at the end")

// Run listens on all ports and serves until ctx ends or a service fails. Then it shuts
// down in this order: the gateway is not ready any more; after the delay, no port but the
// admin port accepts connections, waiting requests have their turn, and running ones
// finish; after the time-out, or when hard ends, the rest is broken off; the admin port
// is closed. If one address cannot be listened on, Run serves none.
func Run(ctx, hard context.Context, o Options) error {
	listeners, err := o.listen()
	if err != nil {
		return err
	}

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var serving sync.WaitGroup
	var addresses []string
	var ending atomic.Bool
	// A service that ends before the shutdown ends the gateway, with or without an error.
	for i, p := range o.Ports {
		addresses = append(addresses, listeners[i].Addr().String())
		o.Logger.Info("serving", "face", p.Name, "address", addresses[i], "tls", p.TLS)
		serving.Go(func() {
			err := p.Service.Serve(listeners[i])
			if err == nil {
				err = errors.New("it has ended by itself")
			}
			if !ending.Load() {
				fail(fmt.Errorf("%s: %w", p.Name, err))
			}
		})
	}

	if o.Started != nil {
		o.Started(addresses)
	}
	o.Health.start()

	// From here on a service that ends is no failure.
	<-ctx.Done()
	ending.Store(true)

	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	delay, timeout := o.Times()
	o.Logger.Info("shutting down", "timeout", timeout)

	err = errors.Join(err, o.shutdown(hard, delay, timeout))
	serving.Wait()
	return err
}

// listen opens all ports or none.
func (o *Options) listen() ([]net.Listener, error) {
	open := o.Listen
	if open == nil {
		open = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}

	var listeners []net.Listener
	var errs []error
	for _, p := range o.Ports {
		l, err := open(p.Address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
			continue
		}
		if p.Connections > 0 {
			l = limitConnections(l, p.Connections)
		}
		listeners = append(listeners, l)
	}

	if len(errs) == 0 {
		return listeners, nil
	}

	// An address that is in use is a mistake of the configuration: no port is served then.
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return nil, errors.Join(errs...)
}

// shutdown ends all services within the time-out.
func (o *Options) shutdown(hard context.Context, delay, timeout time.Duration) error {
	// A load balancer learns of the end while the ports still accept, and sends no more requests
	// after the delay.
	o.Health.end()
	ctx, cancel := context.WithTimeout(hard, grace(timeout))
	defer cancel()

	pause(ctx, delay)

	// Services and engine end side by side: a request that a service waits for may itself wait for
	// its turn in the engine.
	var done sync.WaitGroup
	var cut atomic.Bool
	for _, p := range o.Ports {
		if p.Admin {
			continue
		}
		done.Go(func() {
			if p.Service.Shutdown(ctx) != nil {
				cut.Store(true)
			}
		})
	}
	if o.Drain != nil {
		done.Go(func() { o.Drain.Shutdown(ctx) }) // those who still wait are answered by now
	}
	done.Wait()

	// The admin port has answered until now, so that probes see a gateway that ends and not one
	// that is gone.
	now, end := context.WithCancel(context.Background())
	end()
	for _, p := range o.Ports {
		if p.Admin {
			p.Service.Shutdown(now) // an answer that is under way is of no use any more
		}
	}

	if cut.Load() {
		return ErrCutOff
	}
	return nil
}

// grace returns how long requests may take to finish. The rest of the time-out is for
// the store, which releases their leases.
func grace(timeout time.Duration) time.Duration { return timeout - min(timeout/5, 2*time.Second) }

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
