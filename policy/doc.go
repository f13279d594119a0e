// Package policy has limits as data: a [Policy] is written in JSON or YAML, kept
// by whatever keeps data, and compiled to rules for the applications that it
// names. [Follow] keeps the rules of a running limiter as a [Source] has them:
// a file (package filesource) or Redis (package redissource).
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
// # Keys
//
// The recipe of a key tells whom a request is counted against:
//
//	ip            the caller's address; ip/56 counts IPv6 by networks of 56 bits
//	user          who is signed in, as the program says (Bindings.User)
//	api-key       the credential in the header X-Api-Key, or in Bindings.APIKeyHeader
//	basic-auth    the user's name of a Basic login
//	header:NAME   the value of a header
//	cookie:NAME   the value of a cookie
//	route method path host
//	global        one count for all
//
// Several are joined by "+", as in "ip+route", so that each pair has a count of
// its own. Values of headers, cookies and credentials are kept as digests only.
// What package keyfuncs says of them holds here.
//
// Data never says whom to trust. Which proxies may name addresses, who the user
// is, and the secret that hides keys are in [Bindings], in the program; headers that
// carry addresses are refused as recipes.
//
// # Matching
//
// A policy applies to the requests that meet all conditions of its [Match], and
// all policies that apply are decided together: there is no first match. A path
// is a pattern as net/http.ServeMux has them, without a method and a host:
//
//	/users/{id}       one segment, whatever it is
//	/static/          all below; so does /static/{rest...}
//	/posts/{$}        this path and nothing below, as does /posts
//
// To avoid a policy by writing a path in another way must not be possible, so a
// pattern matches more than a router would: the case of A to Z, slashes that are
// doubled and one at the end do not matter, a path with dots is matched as it
// came and as it is without them, and the pattern that the router has matched
// counts as well. Where the router is not known and takes "%2F" for a part of a
// segment, use a pattern that ends with a slash.
//
// An [Index] finds the policies that apply without a look at each.
//
// # Changes
//
// A revision is put in force as a whole or refused as a whole, and then the last
// good one stays. Counts belong to the name of a policy and its algorithm, so no
// change of anything else resets them.
package policy
