// Package limitfile reads the configuration files of envoyproxy/ratelimit, so that its users can
// keep them. [Follow] reads those in a folder and makes a [Config] of them, whose [Domain] finds
// the [Limit] of a request.
package limitfile
