package policy

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Policy is one limit, and the applications and requests that it is for. Its zero
// value is not valid; see [Policy.Validate].
//
// # Keys
//
// The recipe in Key determines whom a request is counted against:
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
// # Plans, exceptions and bans
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
//	  ban: 20/1m for 10m max 24h
//
// The plans are the limits of callers who have one, and limit is that of all others. The
// program knows who has which plan: plan_by names its function in [Bindings]. Under access are
// callers whom the policy does not limit, and others whom it refuses at once; see [Access]. The
// key that is refused 20 times within a minute is banned for 10 minutes, and next time for 20;
// see [core.Ban].
type Policy struct {
	// Name identifies the policy, and its counts, as a rule's name does: a
	// letter a to z, then a to z, 0 to 9, "_", "." and "-", at most 64 bytes.
	Name string `json:"name" yaml:"name"`

	// Description is for people: at most MaxText bytes, in one line or more.
	Description string `json:"description,omitempty" yaml:"description,omitempty"`

	// Apps names the applications that the policy is for, without wildcards. It
	// must name at least one, at most MaxApps, and none twice.
	Apps []string `json:"apps" yaml:"apps"`

	Limit core.Limit `json:"limit" yaml:"limit"`

	// Plans are the limits of callers who have a plan, by the plan's name: a letter a to z,
	// then a to z, 0 to 9, "_", "." and "-", at most 64 bytes. Limit is that of all other
	// callers. All have the algorithm of Limit, and a concurrency limit its ttl too, so
	// used units stay used when a caller's plan changes. There are at most MaxPlans.
	Plans map[string]core.Limit `json:"plans,omitempty" yaml:"plans,omitempty"`

	// PlanBy names the function in Bindings.Plans that knows the plan of a caller. It is
	// needed with Plans, and a mistake without.
	PlanBy string `json:"plan_by,omitempty" yaml:"plan_by,omitempty"`

	// Overrides are the limits of single keys, which come before plans and Limit. A key is
	// written as the policy counts it: under "ip" it is an IPv4 address or an IPv6 network, such
	// as "2001:db8::/64", under "host" and "method" what keyfuncs.Host and keyfuncs.Method
	// return, and under "api-key", "basic-auth", "header:NAME" and "cookie:NAME" it is a digest,
	// as keyfuncs.Digest returns it. A key that no caller can have is a mistake.
	//
	// A key that ends in "*", as in "acme:*", stands for all keys with that prefix. Addresses and
	// digests have none. The entry of the key itself comes before those of prefixes, and the
	// longest prefix before shorter ones. An entry that has ended counts as missing.
	//
	// All have the algorithm of Limit, and a concurrency limit its ttl too, so used units stay
	// used when the limit of a key changes. There are at most MaxOverrides. An [OverrideSource]
	// has more beside the policies.
	Overrides map[string]Override `json:"overrides,omitempty" yaml:"overrides,omitempty"`

	// Cost is how many units a request takes; the zero value means 1. One that is more than Limit,
	// a plan or an override ever has is a mistake. Limits that the answer settles need a debt,
	// which a sliding log and a concurrency limit do not have.
	Cost Cost `json:"cost,omitzero" yaml:"cost,omitempty"`

	// Refund lists the answers that give the units back, such as [304, 5xx]. Or CountOnly lists
	// the only answers that do not, such as [401]. Both mean the status that was really sent. At
	// most one of them is set, and neither under a concurrency limit, which gets its units back
	// with every answer. Where no answer is seen, as by a service that only asks whether a
	// request may pass, the units stay taken.
	Refund    Statuses `json:"refund,omitempty" yaml:"refund,omitempty"`
	CountOnly Statuses `json:"count_only,omitempty" yaml:"count_only,omitempty"`

	// Key is the recipe that determines whom a request is counted against, such
	// as "ip" or "user+route".
	Key string `json:"key" yaml:"key"`

	// Match selects the requests that the policy applies to. The zero value
	// selects all.
	Match Match `json:"match,omitzero" yaml:"match,omitempty"`

	// Access lists callers whom the policy does not limit, and others whom it refuses at
	// once. The zero value lists none.
	Access Access `json:"access,omitzero" yaml:"access,omitempty"`

	// OnLimit is the action for a request over the limit: "reject", "degrade", or
	// "wait" and the longest wait, as in "wait 500ms"; "" means "reject".
	OnLimit string `json:"on_limit,omitempty" yaml:"on_limit,omitempty"`

	// Enforce is the share of the keys that the policy is in force for, such as "10%"; 0 means all.
	// For the others it is as in Shadow. A key that it is in force for stays so while the share
	// grows; see limiter.Rule.Enforce.
	Enforce core.Share `json:"enforce,omitzero" yaml:"enforce,omitempty"`

	// Warn is the share of a limit from which on a key is reported as near it, such as "80%"; 0
	// means none. It is below 100 %; see limiter.Rule.Warn.
	Warn core.Share `json:"warn,omitzero" yaml:"warn,omitempty"`

	// Ban turns a key away for a while after many refusals; the zero value bans no key. It
	// needs an OnLimit that refuses, and a limit without leases. In Shadow mode a policy
	// bans no key.
	Ban core.Ban `json:"ban,omitzero" yaml:"ban,omitempty"`

	// OnStoreError is the failure mode for a request that the store cannot decide:
	// "open", "closed" or "local"; "" means the limiter's own.
	OnStoreError string `json:"on_store_error,omitempty" yaml:"on_store_error,omitempty"`

	Mode Mode `json:"mode,omitzero" yaml:"mode,omitempty"`

	// Priority orders the rules of an application: the highest comes first, and
	// equals are ordered by name. It is within -MaxPriority to MaxPriority. All
	// policies that match apply.
	Priority int `json:"priority,omitempty" yaml:"priority,omitempty"`

	// Version counts the changes of this policy, for the program that stores it.
	// It has no influence on decisions.
	Version int64 `json:"version,omitempty" yaml:"version,omitempty"`

	// CreatedBy and UpdatedBy have at most 200 bytes. They and the times are for
	// the program that stores the policy.
	CreatedBy string    `json:"created_by,omitempty" yaml:"created_by,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero" yaml:"created_at,omitempty"`
	UpdatedBy string    `json:"updated_by,omitempty" yaml:"updated_by,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero" yaml:"updated_at,omitempty"`
}

// Match selects the requests that meet all of its conditions. All requests meet
// an empty condition. All policies that apply to a request are decided together: there is no
// first match. An [Index] finds them without trying each.
//
// # Paths
//
// A path is a pattern of net/http.ServeMux without a method and a host:
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
type Match struct {
	// Methods lists at most 16 methods in upper case. "GET" covers HEAD.
	Methods []string `json:"methods,omitempty" yaml:"methods,omitempty"`

	// Host is a name in lower case without a port, or an address, or "*." and a
	// name for all hosts below that name.
	Host string `json:"host,omitempty" yaml:"host,omitempty"`

	// Path is a pattern of net/http.ServeMux without method and host.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`

	// Except lists at most MaxExcept patterns, as Path is one, of requests that the policy does
	// not apply to, such as "/healthz" or "/static/". Unlike Path they mean one spelling alone:
	// case and a slash at the end count, and a path with dots, escapes, parameters, backslashes
	// or doubled slashes is never left out, as programs read it in several ways.
	Except []string `json:"except,omitempty" yaml:"except,omitempty"`

	// Headers are the headers that a request must have, by name, each with one of the values in
	// one of its lines, or with any value where they are "*". The case of names does not matter,
	// that of values does. There are at most MaxNames. A client chooses its headers: a policy
	// that matches one is for what a client gains nothing by leaving out.
	Headers map[string]Values `json:"headers,omitempty" yaml:"headers,omitempty"`

	// Query are the parameters that the query of a request must have, by name, as Headers are. A
	// parameter that stands twice has both values. Names and values are compared decoded, and
	// their case matters. They are read as net/http does: a parameter with a semicolon or a
	// percent sign that escapes nothing is left out, though other servers read it. A client
	// chooses its query too.
	Query map[string]Values `json:"query,omitempty" yaml:"query,omitempty"`

	// Claims are the claims that the token of a request must have, by name, as Headers are. The
	// program verifies the token; see Bindings.Claims. A dot in a name leads into an object, as in
	// "realm_access.roles", unless a claim has the whole name. Of a list one element is enough.
	// Numbers and booleans are compared as their text, in which 5.0 is 5.
	Claims map[string]Values `json:"claims,omitempty" yaml:"claims,omitempty"`
}

// Mode says whether a policy is in force. Its text is its name in lower case.
type Mode uint8

// The modes. The zero value is Enforce.
const (
	Enforce Mode = iota
	Shadow       // requests are counted and reported, and none is refused
	Off          // ignored
)

var modeNames = [...]string{Enforce: "enforce", Shadow: "shadow", Off: "off"}

// String returns "enforce", "shadow" or "off".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText returns String; an unknown mode is an error.
func (m Mode) MarshalText() ([]byte, error) {
	if int(m) >= len(modeNames) {
		return nil, fmt.Errorf("%s is not known", m)
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads what MarshalText writes; "" is Enforce.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = Enforce
		return nil
	}
	for i, name := range modeNames {
		if string(text) == name {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not enforce, shadow or off", textform.Clip(string(text)))
}
