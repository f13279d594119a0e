package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/test/redistest"
)

// started is a console that runs, with a channel of its lines.
type started struct {
	lines chan string
	ended chan error // has its error after the last line
	stop  context.CancelFunc
}

// launch runs a console, whose lines have to be read.
func launch(t *testing.T, args ...string) *started {
	t.Helper()
	c, err := config.Parse(args, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	s := &started{make(chan string), make(chan error, 1), stop}
	out, w := io.Pipe()
	go func() {
		err := run(ctx, c, w)
		w.Close()
		s.ended <- err
	}()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
		close(s.lines)
	}()
	return s
}

// until reads lines up to the first that has a text, and returns it.
func (s *started) until(t *testing.T, text string) string {
	t.Helper()
	for line := range s.lines {
		if strings.Contains(line, text) {
			return line
		}
	}
	t.Fatalf("no line has %q: %v", text, <-s.ended)
	return ""
}

// end stops the console, and returns its error and whether a line has a text.
func (s *started) end(text string) (bool, error) {
	s.stop()
	said := false
	for line := range s.lines {
		said = said || strings.Contains(line, text)
	}
	return said, <-s.ended
}

// The order in which the three start does not matter.
func TestRunStartsBeforeItsServers(t *testing.T) {
	maria, redisServer := mariadbtest.Start(t), redistest.Start(t)
	url := maria.Database(t)
	maria.Kill()
	redisServer.Kill()

	// Each is missed by its address.
	s := launch(t, "-listen", "127.0.0.1:0", "-db", url, "-redis", "redis://"+redisServer.Addr)
	s.until(t, `msg="Redis does not answer yet: policies are published once it does" server=`+redisServer.Addr)
	s.until(t, `msg="waiting for the database" engine=mysql server=`+maria.Addr)

	// The console serves as soon as the database is there, and publishes as soon as Redis is.
	maria.Restart(t)
	address := address.FindStringSubmatch(s.until(t, "msg=serving"))[1]
	healthy(t, address)
	s.until(t, "publishing fails; trying again until it works")
	redisServer.Restart()
	s.until(t, "publishing works again")
	healthy(t, address)

	if _, err := s.end(""); err != nil {
		t.Error(err)
	}
}

// A console that is told to end while it waits has nothing to complain of.
func TestRunEndsWhileItWaits(t *testing.T) {
	maria := mariadbtest.Start(t)
	url := maria.Database(t)
	maria.Kill()

	s := launch(t, "-listen", "127.0.0.1:0", "-db", url)
	s.until(t, "waiting for the database")
	if said, err := s.end("ended before it served"); err != nil || !said {
		t.Errorf("it says so: %t, with the error %v", said, err)
	}
	maria.Restart(t) // the database is dropped
}

// What Redis refuses is an error before anything is served.
func TestRunEndsAtARefusalOfRedis(t *testing.T) {
	closed := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: closed.Addr})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}

	for url, want := range map[string]string{
		"redis://" + closed.Addr:                "NOAUTH",
		"redis://:wrong-word@" + closed.Addr:    "WRONGPASS",
		"redis://:right@" + closed.Addr + "/99": "ERR DB index is out of range",
	} {
		s := launch(t, "-listen", "127.0.0.1:0", "-data", filepath.Join(t.TempDir(), "data"), "-redis", url)
		served := false
		for line := range s.lines {
			served = served || strings.Contains(line, "msg=serving")
			if strings.Contains(line, "msg=serving") {
				s.stop()
			}
		}

		err := <-s.ended
		if served || err == nil || !strings.HasPrefix(err.Error(), "redis: 127.0.0.1:") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf("%s: serves: %t, the error is %v", want, served, err)
		}
	}
}
