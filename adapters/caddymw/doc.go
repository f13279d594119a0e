// Package caddymw is a module of Caddy that limits requests: the handler
// http.handlers.headgate and the directive headgate of a Caddyfile. A site with the limits of a
// file:
//
//	example.com {
//		headgate {
//			app      shop
//			policies /etc/caddy/limits.yaml
//		}
//		reverse_proxy 127.0.0.1:8080
//	}
//
// A Caddy that has the module is built by
//
//	xcaddy build --with github.com/headgate/headgate/adapters/caddymw
//
// [Handler] is the handler, and [Config] has the options. No program needs them: Caddy makes a
// handler of its configuration.
//
// The limits are policies, which the handler follows in a file, or in Redis, where the
// management page publishes them. It counts in memory, or in a Redis that all instances
// share. docs/caddy.md has the directive.
//
// The address of a caller is the one that Caddy has determined by its own trusted_proxies,
// the user is the one whom Caddy has authenticated, and the path is the one that the
// client asked for, before any rewrite. A request meets the same limits once, also if two
// handlers of one configuration are on its way.
package caddymw
