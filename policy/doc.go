// Package policy describes limits as data. A [Policy] is written in JSON, or in YAML
// by package policyyaml, stored anywhere, and compiled to rules for the applications
// that it names. [Follow] keeps the rules of a running limiter equal to the policies
// of a [Source]: a file (package filesource) or Redis (package redissource).
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
//	  mode: shadow
//
// A program of the application "shop" that has the policies in a file follows them so:
//
//	l := limiter.MustNew(limiter.Config{})
//	source, err := filesource.New("limits.yaml")
//	...
//	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
//
// Package managed opens the limiter and the source as well, for policies that are published in
// Redis. [Compile] makes rules of policies once, for a program that follows none.
//
// # Keys
//
// The recipe of a key determines whom a request is counted against:
//
//	ip            the caller's address; ip/56 counts IPv6 by networks of 56 bits
//	user          the user who is signed in, from the program (Bindings.User)
//	api-key       the credential in the header X-Api-Key, or in Bindings.APIKeyHeader
//	basic-auth    the user name of Basic authentication
//	header:NAME   the value of a header
//	cookie:NAME   the value of a cookie
//	route method path host
//	global        one count for all
//
// Several recipes are joined by "+", as in "ip+route", so that each combination
// has its own count. Values of headers, cookies and credentials are kept as digests only.
// The documentation of package keyfuncs applies to them.
//
// A policy never decides whom to trust. The program sets in [Bindings] which
// proxies may name addresses, how to find the user and the plan, and the secret that hides
// keys. Headers that carry addresses are refused as recipes.
//
// # Plans and exceptions
//
//	policies:
//	- name: api
//	  apps: [shop]
//	  key: user
//	  limit: 60/1h
//	  plans: {free: 1000/1h, pro: 100000/1h burst=500}
//	  plan_by: user
//	  access:
//	    allow: {networks: [10.0.0.0/8]}
//	    deny: {networks: ["2001:db8::/32"], keys: [mallory]}
//
// The plans are the limits of callers who have one, and limit is that of all others. The
// program knows who has which plan: plan_by names its function in [Bindings]. A policy
// cannot choose a plan by a header or a claim itself, because that would be to decide whom
// to trust. Under access are callers whom the policy does not limit, and others whom it
// refuses at once; see [Access].
//
// # Bans
//
//	policies:
//	- name: login
//	  apps: [shop]
//	  limit: 5/1m
//	  key: ip
//	  ban: 20/1m for 10m max 24h
//
// The key that is refused 20 times within a minute is banned for 10 minutes, and next time
// for 20; see core.Ban.
//
// # Matching
//
// A policy applies to the requests that meet all conditions of its [Match], and
// all policies that apply are decided together: there is no first match. A path
// is a pattern of net/http.ServeMux without a method and a host:
//
//	/users/{id}       one segment, whatever it is
//	/static/          all below; so does /static/{rest...}
//	/posts/{$}        this path and nothing below, as does /posts
//
// Patterns of other routers, globs and regular expressions are mistakes, as are a query and a
// fragment: "/api/*", "/users/:id", "^/login$", "/login?next=". They would be read as literals
// that no path has. The mistake names the pattern that is probably meant. A character that
// means something elsewhere is written with a percent sign, as in "/%2A".
//
// A client must not escape a policy by spelling a path differently, so a pattern
// matches more than a router would. The case of A to Z, doubled slashes and a
// slash at the end do not matter. A path with dots is matched both as it came and
// cleaned, and one with "%2F" both as a slash and as a part of its segment.
//
// The pattern that the router has matched counts as well, if one is known. If it covers
// any number of segments, as "/static/*" does, or is the prefix of a middleware, only
// policies that cover all below it apply. Echo's last parameter takes the rest of a path,
// so "/files/:name" also serves /files/a/b. A policy for "/files/{name}" counts that in
// middleware of Use and of routes. Outside of Echo's router, use "/files/".
//
// An [Index] finds the policies that apply without trying each of them.
//
// # Changes
//
// A revision is put in force as a whole or refused as a whole; if it is refused,
// the last good one stays in force. Counts belong to a policy's name and
// algorithm, so a change of anything else does not reset them.
package policy
