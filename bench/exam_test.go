package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// lies are contenders that do not do what the others do: each answers request i for a key, of all
// requests and of those for the key.
var lies = map[string]func(all, ofKey int) bool{
	"admits all":            func(int, int) bool { return true },
	"refuses the last unit": func(_, ofKey int) bool { return ofKey < exam.burst-1 },
	"admits one too many":   func(_, ofKey int) bool { return ofKey <= exam.burst },
	"shares a count":        func(all, _ int) bool { return all < exam.burst },
	"panics":                func(int, int) bool { panic("oops") },
}

// liar returns a take that lies.
func liar(lie func(all, ofKey int) bool) take {
	all, counts := -1, map[string]int{}
	return func(key string) bool {
		all++
		counts[key]++
		return lie(all, counts[key]-1)
	}
}

// canned is a service that answers without a handler.
type canned serve

func (c canned) requests() serve { return serve(c) }

// fails plays a contest and expects the one contender to have failed in the exam, by its name.
func fails(t *testing.T, name string, list []contender) {
	t.Helper()

	out := contest(list, 1)
	if len(out) != 1 || out[0].name != name || out[0].failed == nil {
		t.Fatalf("%q passes: %+v", name, out)
	}

	if text := out[0].failed.Error(); !strings.HasPrefix(text, "exam: ") && text != "panic: oops" {
		t.Errorf("%q fails for another reason: %s", name, text)
	}
}

func TestExamFailsALiarByName(t *testing.T) {
	p := pace{round: time.Millisecond}
	for name, lie := range lies {
		inMemory := memoryPeer{name: name, open: func(quota) (func() take, error) { return shared(liar(lie)) }}
		fails(t, name, compete(works()[0], p, []memoryPeer{inMemory}))

		// Clients of HTTP have numbers, of which each is a key.
		overHTTP := httpContest{peers: []httpPeer{{name, func(quota) (service, error) {
			l := liar(lie)
			return canned(func(client int) int {
				if l(string(rune('0' + client))) {
					return http.StatusOK
				}
				return http.StatusTooManyRequests
			}), nil
		}}}}
		fails(t, name, overHTTP.contenders(wide, http.StatusOK, p))

		// No server is asked, as the liar is the limiter.
		inRedis := redisPeer{name: name, open: func(string, quota) (func() ask, func(), error) {
			l := liar(lie)
			return same(func(_ context.Context, key string) error { return admitted(l(key), nil) }), func() {}, nil
		}}
		list, _ := contenders([]redisPeer{inRedis}, "", 1, time.Millisecond, time.Millisecond)
		fails(t, name, list)
	}
}

// Another status than the two is no answer of a limiter.
func TestExamFailsAnotherStatus(t *testing.T) {
	broken := httpContest{peers: []httpPeer{{"broken", func(quota) (service, error) {
		return canned(func(int) int { return http.StatusInternalServerError }), nil
	}}}}
	fails(t, "broken", broken.contenders(wide, http.StatusOK, pace{round: time.Millisecond}))
}

func TestContendersInMemoryPassTheExam(t *testing.T) {
	for _, peer := range memoryPeers {
		if err := peer.examine(); err != nil {
			t.Errorf("%s: %v", peer.name, err)
		}
	}
}

func TestContendersInRedisPassTheExam(t *testing.T) {
	test.Program(t, "redis-server", "redis-server")
	addr, stop, err := startRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()

	for _, peer := range redisPeers {
		if err := peer.examine(addr); err != nil {
			t.Errorf("%s: %v", peer.name, err)
		}
	}

	// Those with several rules take the exam under each number of them.
	for _, peer := range ruledPeers {
		for _, n := range counts {
			if err := examineRemote(peer.open(addr, n, exam)); err != nil {
				t.Errorf("%s, %d rules: %v", peer.name, n, err)
			}
		}
	}
}
