package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func TestShopsShareTheCountsOfAPublishedPolicy(t *testing.T) {
	addr := redistest.Start(t).Addr
	publish(t, addr, `{"policies":[{"name":"visitors","apps":["shop"],"limit":"3/1h sliding-log","key":"ip"}]}`)
	shops := []string{open(t, addr), open(t, addr)}
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got := status(t, shops[i%len(shops)]); got != want {
			t.Errorf("request %d has status %d, want %d", i+1, got, want)
		}
	}
}

func publish(t *testing.T, addr, text string) {
	t.Helper()
	set, err := policy.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()

	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}

	// The first set replaces none.
	if _, err := source.Publish(t.Context(), set, ""); err != nil {
		t.Fatal(err)
	}
}

// open serves until the test ends, and returns the URL.
func open(t *testing.T, addr string) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())

	// The program also starts before there are policies.
	ended := make(chan error, 1)
	follow := policy.Options{Instance: "shop-1", OnMissing: policy.OnMissingWait}
	go func() { ended <- serve(ctx, addr, follow, redisstore.Options{Timeout: time.Minute}, listener) }()

	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String() + "/"
}

func status(t *testing.T, url string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	return r.StatusCode
}
