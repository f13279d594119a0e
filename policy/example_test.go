package policy_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/policy/policyyaml"
)

const shop = `
policies:
- name: login
  apps: [shop]
  limit: 5/1m sliding-log
  key: ip+route
  match:
    methods: [POST]
    path: /login
- name: api
  apps: [shop, partners]
  limit: 100/1m burst=20
  key: api-key
  on_limit: wait 500ms
`

func ExampleCompile() {
	set, err := policyyaml.Decode([]byte(shop))
	if err != nil {
		fmt.Println(err)
		return
	}

	// The addresses that proxies in private networks forward are trusted.
	proxied, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: keyfuncs.Private()})
	if err != nil {
		fmt.Println(err)
		return
	}

	compiled, err := policy.Compile("shop", set, policy.Bindings{IP: proxied})
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, r := range compiled.Rules() {
		fmt.Println(r.Name, r.Limit, r.OnLimit)
	}
	// Output:
	// api 100/1m burst=20 wait 500ms
	// login 5/1m sliding-log reject
}

func ExamplePolicy_Describe() {
	set, err := policyyaml.Decode([]byte(shop))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range set {
		fmt.Println(p.Describe())
	}
	// Output:
	// 5 POST requests within any minute to /login for each address and route; others are refused
	// 100 requests a minute for each API key, at most 20 at once; others wait up to 500ms
}

func ExampleSet_Rule() {
	set, err := policyyaml.Decode([]byte(shop))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = set.Rule("partners", "login", policy.Bindings{})
	fmt.Println(errors.Is(err, policy.ErrNotConfigured), err)
	// Output:
	// true policy "login" of application "partners": not configured: the policy does not name the application
}

// A limiter follows the policies of a file.
func ExampleFollow() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "limits.yaml")
	if err := os.WriteFile(file, []byte(shop), 0o600); err != nil {
		log.Fatal(err)
	}

	source, err := filesource.New(file) // such as limits.yaml
	if err != nil {
		log.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{})
	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()

	fmt.Println(l.RuleNames())
	// Output: [api login]
}
