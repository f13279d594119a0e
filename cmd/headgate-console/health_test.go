package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/internal/test/freeport"
)

func TestHealthIsTheCode(t *testing.T) {
	console := httptest.NewServer(open(t, config.Config{}))
	defer console.Close()
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the disk is full", http.StatusServiceUnavailable)
	}))
	defer sick.Close()

	// Whatever starts the command in an image sees the code, and a person sees why.
	for _, c := range []struct {
		args     []string
		code     int
		out, bad string
	}{
		{[]string{"-url", console.URL}, 0, "ok\n", ""},
		{[]string{"-url", sick.URL}, 1, "the disk is full\n", "503 Service Unavailable"},
		{[]string{"-url", "http://" + freeport.Addr(t)}, 1, "", "refused"},
		{[]string{"-url", "::"}, 1, "", "missing protocol scheme"},
		{[]string{"now"}, 2, "", `the argument "now" is not a flag`},
		{[]string{"-h"}, 0, "", "URL of the console"},
	} {
		args := append([]string{"health"}, c.args...)
		var out, bad strings.Builder
		code := commandOf(args)(t.Context(), args, nil, &out, &bad)
		if code != c.code || out.String() != c.out || !strings.Contains(bad.String(), c.bad) {
			t.Errorf("%s ends with %d, %q and %q", args, code, out.String(), bad.String())
		}
	}
}
