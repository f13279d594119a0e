// Package api offers everything that the pages of the console do to programs, as JSON under /api/.
// The OpenAPI description is at /api/openapi.json.
//
// [New] makes an [API], which is the handler. A request becomes a call, whose methods serve the
// routes.
package api
