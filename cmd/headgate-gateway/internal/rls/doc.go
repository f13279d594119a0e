// Package rls is the face of the gateway for Envoy: its rate limit service, version 3
// (envoy.service.ratelimit.v3). A [Server] answers it; package limitfile reads the limits of
// envoyproxy/ratelimit.
//
// # Where limits come from
//
// A call names a domain. If the folder of Options.Config has the domain, its files say the
// limits; see package limitfile. Otherwise the domain is an application, whose policies
// are the limits. A domain that is neither is answered with the status NOT_FOUND.
//
// # Descriptors and policies
//
// All descriptors of a call describe one request. An entry of a descriptor is a property of
// the request:
//
//	remote_address            the address of the caller: the keys ip and ip/56, networks
//	method, :method           the method
//	path, :path               the path; a query is cut off
//	host, :authority          the host
//	route                     the route
//	user                      the user, for the key user
//	plan                      the plan of the caller, for plan_by: header
//	any other NAME            the header NAME, for header:NAME, api-key and basic-auth
//
// So an entry tenant=acme is for policies with the key header:tenant. Envoy is believed: it is
// the client of this service, which only Envoy may reach.
//
// A policy applies to a descriptor that has all that the policy asks for: its key, its
// match, and an address if it has networks. A count to which several descriptors lead is
// charged once. All descriptors are decided in one step: a request that is refused costs
// nothing anywhere.
//
// # Fields of the call
//
//	hits_addend of the request      the cost for each descriptor; 0 means 1
//	hits_addend of a descriptor     the cost for it; 0 checks without counting, and is
//	                                refused only where more is in use than the limit has
//	is_negative_hits                gives back so many units
//	limit                           replaces the quota and the period of the limits that
//	                                apply. In a domain of the folder it is a limit of its
//	                                own, as in envoyproxy/ratelimit, whose counts are by
//	                                the entries. 0 requests refuse. It may be higher: the
//	                                configuration of Envoy sets it
//
// Envoy sends a call with apply_on_stream_done when the answer has ended, and nothing in it
// distinguishes it from any other call. As the units are used, it has to be charged beyond the
// limit too: the next request pays. There are two ways to say so. A descriptor with the entry
// headgate=debit, from a generic_key action with that descriptor_key, is charged
// whatever the count; the entry is not used otherwise. And in the domains of Options.Debit
// so is every descriptor with a hits_addend of its own that is above 0. A debit goes up to
// the debt of the limit, once its capacity unless the policy says otherwise.
//
// # Fields of the answer
//
// statuses has one element for each descriptor. Its limit is that which is the most
// exhausted of those that apply. The unit and unit_multiplier of current_limit give the true
// period; Envoy before 1.37 or so ignores the multiplier. duration_until_reset is, for a
// refusal, the time after which the same request would pass, and otherwise that until all
// units are back. It is in whole seconds, rounded up, as Envoy cuts fractions off.
//
// A limit that degrades lets the request pass with OVER_LIMIT in its status, and adds the
// header Headgate-Degraded: 1 to the request. A limit in shadow mode never says
// OVER_LIMIT; its refusals are counted in the log once a minute, and by the observers of the
// policies. A refusal has a body of application/problem+json, Retry-After and, as every
// answer does, RateLimit and RateLimit-Policy.
//
// dynamic_metadata is empty unless there is something to say:
//
//	fallback: true       Redis is away, and the gateway decided in memory
//	undecided: true      nothing could decide, so the failure modes of the policies did
//	late: true           the decision took more than 50 ms
//	refused: [names]     of the limits that refuse the request
//	shadow: [names]      of the limits in shadow mode that would have refused it
//	metadata: {}         of the limits in the folder that the request is within
//
// # When the store fails
//
// A limit that fails open lets the request pass. One that fails closed answers OVER_LIMIT, as
// that is the only answer that turns a request away under every configuration of Envoy; the
// body says 503. With Options.ClosedAsError the call ends with UNAVAILABLE, and
// failure_mode_deny and status_on_error of Envoy decide.
//
// # What this face cannot do
//
// Concurrency limits are left out, because Envoy does not say when a request ends. A limit with
// on_limit wait refuses what is over it, because Envoy's time-out is shorter.
package rls
