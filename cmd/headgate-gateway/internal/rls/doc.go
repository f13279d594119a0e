// Package rls is the face of the gateway for Envoy: its rate limit service, version 3
// (envoy.service.ratelimit.v3). [New] makes a [Server], which answers it. Its limits are policies,
// or files of envoyproxy/ratelimit, which package limitfile reads.
package rls
