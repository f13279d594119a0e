package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func TestBothFrameworksFollowWhatIsPublishedAndShareCounts(t *testing.T) {
	addr := redistest.Start(t).Addr
	publish(t, addr, `{"policies":[{"name":"visitors","apps":["shop"],"limit":"3/1h sliding-log","key":"ip"}]}`)
	var urls []string
	for framework := range frameworks() {
		urls = append(urls, open(t, "-framework", framework, "-redis", "redis://"+addr, "-listen", "127.0.0.1:0", "-timeout", "1m"))
	}
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got := status(t, urls[i%len(urls)]+"/"); got != want {
			t.Errorf("request %d has status %d, want %d", i+1, got, want)
		}
	}
	for _, url := range urls {
		if got := status(t, url+"/healthz"); got != http.StatusOK {
			t.Errorf("/healthz has status %d", got)
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
	if _, err := source.Publish(t.Context(), set, ""); err != nil {
		t.Fatal(err)
	}
}

var address = regexp.MustCompile(`msg=serving .*address=(\S+)`)

// open runs an instance until the test ends, and returns its URL.
func open(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, args, w)
		w.Close()
		ended <- err
	}()
	lines, url := bufio.NewScanner(out), ""
	for url == "" && lines.Scan() {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			url = "http://" + m[1]
		}
	}
	go io.Copy(io.Discard, out)
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return url
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

func TestAllMistakesOfACommandLineAreNamedAndNoPassword(t *testing.T) {
	err := run(t.Context(), []string{"-framework", "none", "-redis", "http://user:secret@host", "more"}, io.Discard)
	if err == nil {
		t.Fatal("it runs")
	}
	for _, want := range []string{`"none"`, "-redis", `"more"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%q shows the password", err)
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
