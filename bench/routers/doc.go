// Package routers tests which requests a policy counts behind each router, and writes
// docs/paths.md.
package routers
