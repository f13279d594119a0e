// Package policy describes limits as data, which a running limiter follows. A policy is written
// in JSON, or in YAML by package policyyaml, and stored anywhere:
//
//	policies:
//	- name: login
//	  apps: [shop]
//	  limit: 5/1m sliding-log
//	  key: ip+route
//	  match:
//	    methods: [POST]
//	    path: /login
//	- name: api
//	  apps: [shop, partners]
//	  limit: 100/1m burst=20
//	  key: api-key
//	  on_limit: wait 500ms
//
// A program of the application "shop" that has the policies in a file follows them so:
//
//	source, err := filesource.New(file) // such as limits.yaml
//	if err != nil {
//		log.Fatal(err)
//	}
//	l := limiter.MustNew(limiter.Config{})
//	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer follower.Close()
//
// A [Policy] is one limit, and the applications and requests that it is for; its documentation
// lists the keys, and [Match] has the patterns of paths. A [Source] has the policies: a file
// (package filesource), Redis (package redissource), or one of the program's own. [Bindings] hold
// what a policy cannot say. Package managed opens the limiter and the source as well, for policies
// that are published in Redis. [Compile] makes rules of policies once, for a program that follows
// none.
//
// # Trust
//
// A policy never decides whom to trust. The program sets in [Bindings] which proxies may name
// addresses, how to find the user, the plan and the claims of a token, and the secret that hides
// keys. A policy cannot choose a plan by a header or a claim itself, and headers that carry
// addresses are refused as keys. It applies by claims that the program has verified.
//
// # Changes
//
// A revision is put in force as a whole or refused as a whole; if it is refused, the last good one
// stays in force. Of a source that is a [Reporter], such as Redis, single policies that a program
// cannot carry out are left out instead. Counts belong to a policy's name and algorithm, so a
// change of anything else does not reset them.
package policy
