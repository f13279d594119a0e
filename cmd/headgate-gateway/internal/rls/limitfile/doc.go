// Package limitfile reads the configuration files of envoyproxy/ratelimit, so that its
// users can keep them.
//
//	domain: shop
//	descriptors:
//	- key: remote_address
//	  rate_limit: {unit: minute, requests_per_unit: 100}
//	- key: tenant
//	  value: free-*
//	  descriptors:
//	  - key: path
//	    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: sliding-window}
//
// # What a file says
//
// A file is about one domain, and several files may be about the same one. A descriptor
// has a key, and a value unless it is for all of them. A "*" in a value stands for any
// number of bytes. Under rate_limit is the limit of requests whose entries lead exactly
// there, and under descriptors is what may follow.
//
// An entry leads to the descriptor with its key and value, otherwise to the first in the
// file with its key whose pattern its value matches, otherwise to the one with its key and
// no value. A request whose second entry leads nowhere has no limit, also if the second
// entry would lead somewhere from another descriptor of the first. Each combination of
// values has a count. Under share_threshold all values that match a pattern share one.
//
// A limit that replaces others by name puts them out of force for a request that meets
// both. An unlimited one counts nothing. One in shadow_mode is counted and refuses no
// request. One in quota_mode refuses requests only if all limits in quota_mode that the
// request meets are exceeded. The answer to a request within the limit carries metadata.
// The fields detailed_metric and value_to_metric are accepted and have no meaning here.
//
// # Windows
//
// Every unit becomes a fixed window: of a second, a minute, an hour, a day, 7 days (week), 30
// (month) or 365 (year), which begins at a multiple of its length since the Unix epoch.
// At the end of a window a caller may thus use the limit twice. Two fields, which
// envoyproxy/ratelimit does not have, say it better:
//
//	algorithm        sliding-window, sliding-log, gcra, token-bucket or fixed-window
//	unit_multiplier  a period of so many units
//
// # What is stricter
//
// An unknown field, a field in a place where it means nothing, and a "*" in a key are
// mistakes. Keys and values are compared apart: an entry a=b_c does not lead to a
// descriptor with the key a_b and the value c. Requests that are refused are not counted.
package limitfile
