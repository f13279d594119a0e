package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// open returns a limiter with the limits of the file, and a handler under it.
func open(t *testing.T, file string) (*limiter.Limiter, http.Handler) {
	t.Helper()
	l := limiter.MustNew(limiter.Config{})
	if err := load(l, file); err != nil {
		t.Fatal(err)
	}
	return l, nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func expect(t *testing.T, h http.Handler, customer, want string) {
	t.Helper()
	a := try.Ask(h, try.Request{Header: map[string]string{"X-Token": customer + "-token"}})
	got := fmt.Sprint(a.Status, " ", a.Show("X-RateLimit-Limit", "X-RateLimit-Remaining"))
	if got != want {
		t.Errorf("%s: status, limit and left: %s, want %s", customer, got, want)
	}
}

// write replaces the file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCustomersHaveAnOwnLimitOrTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := open(t, "limits.json")

		// Alice and bob have limits of their own, and carol has the default.
		expect(t, h, "alice", "200 100 99")
		expect(t, h, "bob", "200 2 1")
		expect(t, h, "bob", "200 2 0")
		expect(t, h, "bob", "429 2 0")
		expect(t, h, "carol", "200 5 4")

		expect(t, h, "alice", "200 100 98")

		// Clients without a token of the program share one count, whatever name they send.
		expect(t, h, "mallory", "200 5 4") // has no token, and shares a count
		expect(t, h, "trudy", "200 5 3")

		time.Sleep(time.Minute)
		expect(t, h, "bob", "200 2 1")
	})
}

func TestLoadKeepsUsedUnits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.json")
	write(t, file, `{"default": "3/1m fixed-window", "alice": "2/1m fixed-window"}`)
	l, h := open(t, file)

	// Two units of alice are used and one of bob.
	expect(t, h, "alice", "200 2 1")
	expect(t, h, "alice", "200 2 0")
	expect(t, h, "bob", "200 3 2")

	write(t, file, `{"default": "9/1m fixed-window", "alice": "5/1m fixed-window", "bob": "4/1m fixed-window", "carol": null}`)
	expect(t, h, "bob", "200 3 1") // not before
	if err := load(l, file); err != nil {
		t.Fatal(err)
	}

	// The counts stay: what a limit allows now is less what was used before.
	expect(t, h, "alice", "200 5 2")
	expect(t, h, "bob", "200 4 1")
	expect(t, h, "carol", "200 9 8")
}

func TestLoadRefusesABadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.json")
	const good = `{"default": "5/1m fixed-window"}`
	write(t, file, good)
	l, h := open(t, file)
	expect(t, h, "carol", "200 5 4")

	// Each of the mistakes leaves the limits as they are.
	for _, row := range []struct{ text, fault string }{
		{`{"default": "9/1m`, "unexpected end of JSON input"},
		{`{"default": "0/1m"}`, `limit "0/1m": quota 0 is not positive`},
		{`{"carol": "9/1m"}`, `rule 0 "default": quota 0 is not positive; period 0s is below 1ms`},
		{good + good, "invalid character '{' after top-level value"},
	} {
		write(t, file, row.text)
		if err := load(l, file); err == nil || !strings.HasSuffix(err.Error(), row.fault) {
			t.Errorf("%s: %v, want %q in the end", row.text, err, row.fault)
		}
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := load(l, file); err == nil || !strings.HasPrefix(err.Error(), "open "+file) {
		t.Errorf("%v, want %v", err, fs.ErrNotExist)
	}

	// The default of the first file still counts.
	expect(t, h, "carol", "200 5 3")
}
