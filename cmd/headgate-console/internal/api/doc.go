// Package api offers to programs what they need of the console, as JSON under /api/: policies and
// keys, files of policies, applications, counts, instances and backups. Users, their tokens and the
// settings are for people alone, on the pages. The OpenAPI description is at /api/openapi.json.
//
// [New] makes an [API], which is the handler. A request becomes a call, whose methods serve the
// routes.
package api
