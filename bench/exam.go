package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// exam is the quota under which each contender shows that it limits, before its time is measured.
var exam = quota{units: 3, period: time.Hour, burst: 3}

// examine asks in turn for keys under the quota of the exam. Each key has its units, and then no
// more, whatever was asked for the others.
func examine(take func(key string) (bool, error), keys ...string) error {
	for i := range exam.burst + 2 {
		for _, key := range keys {
			ok, err := take(key)
			if err != nil {
				return fmt.Errorf("exam: request %d for %s: %w", i+1, key, err)
			}
			if want := i < exam.burst; ok != want {
				return fmt.Errorf("exam: request %d for %s under a limit of %d: admitted %t", i+1, key, exam.burst, ok)
			}
		}
	}
	return nil
}

// passes returns the error of an exam. A panic is one too.
func passes(exam func() error) error {
	_, err := guarded(func() ([]float64, error) { return nil, exam() })
	return err
}

// examine examines a limiter in memory.
func (m *memoryPeer) examine() error {
	worker, err := m.open(exam)
	if err != nil {
		return err
	}

	// One limiter without keys cannot tell two of them apart.
	keys := []string{"first", "second"}
	if m.keyless {
		keys = keys[:1]
	}
	t := worker()
	return examine(func(key string) (bool, error) { return t(key), nil }, keys...)
}

// examine examines a middleware. Its clients have numbers.
func (h *httpPeer) examine() error {
	if h.name == bare {
		return nil
	}
	s, err := h.open(exam)
	if err != nil {
		return err
	}
	one := s.requests()

	// What is neither of the two statuses is no answer of a limiter.
	client := map[string]int{"first": 1, "second": 2}
	return examine(func(key string) (bool, error) {
		switch status := one(client[key]); status {
		case http.StatusOK, http.StatusTooManyRequests:
			return status == http.StatusOK, nil
		default:
			return false, fmt.Errorf("status %d", status)
		}
	}, "first", "second")
}

// exams counts the exams on a server, whose keys must be new each time.
var exams atomic.Int64

// examine examines a limiter in Redis.
func (r *redisPeer) examine(addr string) error {
	if r.idle {
		return nil
	}
	return examineRemote(r.open(addr, exam))
}

// examineRemote examines what was opened, and closes it.
func examineRemote(worker func() ask, stop func(), err error) error {
	defer stop()
	if err != nil {
		return err
	}

	// Peers of one kind share their keys in the server, as the contests want it.
	a, n := worker(), exams.Add(1)
	return examine(func(key string) (bool, error) {
		err := a(context.Background(), key)
		if errors.Is(err, errRefused) {
			return false, nil
		}
		return err == nil, err
	}, fmt.Sprint("first", n), fmt.Sprint("second", n))
}
