// Customers gives each customer an individual limit from a JSON file, which it
// reads again on SIGHUP; customers who are not in the file have the default:
//
//	go run ./examples/customers
//	curl -i -H 'Authorization: Bearer alice-token' http://127.0.0.1:8080/
//	curl -i -H 'Authorization: Bearer carol-token' http://127.0.0.1:8080/
//
// X-RateLimit-Limit is 100 for Alice, 2 for Bob and 5 for Carol, who is not in
// the file. Change examples/customers/limits.json and send a SIGHUP: the new
// limits are in force, and used units stay used. If the file has a mistake, the
// program prints it and keeps the old limits.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/examples/internal/who"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { serve.Main("customers", &program{}) }

type program struct{ file string }

func (p *program) Flags(f *flag.FlagSet) {
	f.StringVar(&p.file, "limits", "examples/customers/limits.json", "file with the limits")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	rules, err := read(p.file)
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(limiter.Config{Store: store, Rules: rules, OnError: serve.LogError})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	reload := func() error {
		rules, err := read(p.file)
		if err != nil {
			return err
		}
		return l.SetRules(rules)
	}
	server := serve.HTTP(authenticate(nethttp.New(l)(hello)))
	return &serve.App{Limiter: l, Server: server, Reload: reload}, nil
}

// authenticate comes before the limiter, which counts by the user that it finds.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		customer, ok := who.Is(r.Header.Get("Authorization"))
		if !ok {
			http.Error(w, "customers only", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(who.NewContext(r.Context(), customer)))
	})
}

// read makes rules of the file. The rules never change: after the next read, new
// rules replace them as a whole.
func read(file string) ([]limiter.Rule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var limits struct {
		Default   core.Limit            `json:"default"`
		Customers map[string]core.Limit `json:"customers"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&limits); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: there is more after the limits", file)
	}
	if err := check(limits.Default, limits.Customers); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	override := func(customer string) (core.Limit, bool) {
		own, ok := limits.Customers[customer]
		return own, ok
	}
	return []limiter.Rule{{Name: "customer", Key: keyfuncs.UserID(who.FromContext), Limit: limits.Default, Override: override}}, nil
}

// check finds limits that are missing or null, for which no text was parsed.
func check(byDefault core.Limit, customers map[string]core.Limit) error {
	var errs []error
	if err := byDefault.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("default: %w", err))
	}
	for _, name := range slices.Sorted(maps.Keys(customers)) {
		if err := customers[name].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("customer %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
