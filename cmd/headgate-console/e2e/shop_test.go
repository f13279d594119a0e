package e2e

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// prompt bounds the time from before the click until a change is in force everywhere.
const prompt = 2 * time.Second

// fleet holds the instances of the application.
type fleet struct {
	t     testing.TB
	shops []*program
}

// openShops starts two instances.
func openShops(t testing.TB, path, redis string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for range 2 {
		f.shops = append(f.shops, start(t, "shop", path, nil, "-redis", redis, "-listen", "127.0.0.1:0",
			"-timeout", "1m"))
	}
	return f
}

var inForce = regexp.MustCompile(`policies are in force"? version=(\S+) policies=(\d+)`)

// follow makes a change, and waits until all instances have it in force. It
// returns its version, and how many policies there are.
func (f *fleet) follow(what string, change func()) (version, policies string) {
	f.t.Helper()

	before := f.counts()

	// The time counts from before the button was pressed.
	began := time.Now()
	change()

	for i, s := range f.shops {
		parts, at := s.awaitAt(before[i], inForce)
		took := at.Sub(began)
		test.AtMost(f.t, what+" in force in "+s.name, took, prompt)
		if version != "" && version != parts[1] {
			f.t.Errorf("%s: %s has version %s, and another has %s", what, s.name, parts[1], version)
		}
		version, policies = parts[1], parts[2]
	}
	return version, policies
}

// counts returns how many lines each instance has printed.
func (f *fleet) counts() (list []int) {
	for _, s := range f.shops {
		list = append(list, s.count())
	}
	return list
}

// meets sends n requests to the instances in turn, and checks how many of them pass.
// The others must be refused.
func (f *fleet) meets(n, pass int) {
	f.t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	defer client.CloseIdleConnections()

	got := map[int]int{}
	for i := range n {
		s := f.shops[i%len(f.shops)]
		r, err := client.Get("http://" + s.address + "/")
		if err != nil {
			f.t.Fatal(err)
		}
		r.Body.Close()
		got[r.StatusCode]++
	}

	if got[http.StatusOK] != pass || got[http.StatusTooManyRequests] != n-pass {
		f.t.Errorf("of %d requests these have each status: %v; want %d that pass and the others refused", n, got, pass)
	}
}
