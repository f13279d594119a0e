package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	maxConns = 10
	users    = 10_000
	budget   = 50 * time.Millisecond
)

// service is what is measured.
type service struct {
	name  string
	pid   int // 0 if it is not known
	conns []*grpc.ClientConn
}

// dial connects to a service.
func dial(name, addr string, pid int) (*service, error) {
	s := &service{name: name, pid: pid}
	for range maxConns {
		c, err := grpc.NewClient("passthrough:"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

func (s *service) close() error {
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// sample is what a round has found.
type sample struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of service and Redis for a decision; 0 if it is not known
	late      int           // calls that took more than 50 ms here, where the callers share the machine
	said      int           // answers that say that the decision was late
	away      int           // answers that say that the store did not decide
}

// round lets callers call for a time.
func (s *service) round(ctx context.Context, callers int, d time.Duration, m *meter) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()

	per := make([]caller, callers)
	before, err := m.read(s.pid)
	if err != nil {
		return sample{}, err
	}

	// The meter is read around the calls alone.
	var done sync.WaitGroup
	start := time.Now()
	for i := range per {
		client := pb.NewRateLimitServiceClient(s.conns[i%min(callers, maxConns)])
		done.Go(func() { per[i].loop(ctx, client) })
	}
	done.Wait()
	took := time.Since(start)
	after, err := m.read(s.pid)
	if err != nil {
		return sample{}, err
	}

	var all []time.Duration
	var out sample
	for i := range per {
		if per[i].err != nil {
			return sample{}, fmt.Errorf("%s: %w", s.name, per[i].err)
		}
		all = append(all, per[i].took...)
		out.late, out.said, out.away = out.late+per[i].late, out.said+per[i].said, out.away+per[i].away
	}

	// A service that answers nothing would look as if it were fast.
	if len(all) == 0 {
		return sample{}, fmt.Errorf("%s answered nothing within %s", s.name, d)
	}

	slices.Sort(all)
	out.perSecond = float64(len(all)) / took.Seconds()
	out.p50, out.p99 = all[len(all)/2], all[len(all)*99/100]
	if s.pid != 0 {
		out.cpu = (after - before) / time.Duration(len(all))
	}
	return out, nil
}

// caller calls again and again.
type caller struct {
	took             []time.Duration
	late, said, away int
	err              error
}

func (c *caller) loop(ctx context.Context, client pb.RateLimitServiceClient) {
	entry := &ratelimit.RateLimitDescriptor_Entry{Key: "user"}
	r := &pb.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{entry},
	}}}

	// A call that has begun when the time is over ends by itself: it would count as a failure else.
	for ctx.Err() == nil {
		entry.Value = fmt.Sprint("user-", rand.IntN(users))
		from := time.Now()
		answer, err := client.ShouldRateLimit(context.WithoutCancel(ctx), r)
		took := time.Since(from)

		switch {
		case err != nil:
			c.err = err
			return
		case answer.GetOverallCode() != pb.RateLimitResponse_OK:
			c.err = fmt.Errorf("a call was refused: %v", answer)
			return
		}

		// What the service says of a decision is counted apart from what was measured here.
		says := answer.GetDynamicMetadata().GetFields()
		if says["late"] != nil {
			c.said++
		}
		if says["fallback"] != nil || says["undecided"] != nil {
			c.away++
		}

		if took > budget {
			c.late++
		}
		c.took = append(c.took, took)
	}
}
