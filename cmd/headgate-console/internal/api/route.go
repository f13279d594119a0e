package api

import (
	"reflect"
	"strings"
)

// route is a method and path that the API serves. Its description is made from it.
type route struct {
	pattern string // of http.ServeMux
	does    string // what it does, for people
	serve   func(*call) error

	in, out reflect.Type // structs: of the query or of a JSON body, and of the answer
	takes   []string     // the media types of a body that is no JSON of in
	gives   []string     // the media types of an answer that is no JSON of out
	creates bool         // the answer may be 201
	open    bool         // clients need no credentials
}

// none is the input or the answer of a route that has none.
type none struct{}

func (none) empty() bool { return true }

// on returns a route. I is read from the query for GET and DELETE, and from a JSON body otherwise.
func on[I, O any](pattern, does string, serve func(*call, *I) (O, error)) route {
	r := file(pattern, does, nil, func(c *call, in *I) error {
		out, err := serve(c, in)
		if err != nil {
			return err
		}
		fillLists(reflect.ValueOf(&out).Elem())
		return c.send(out)
	})
	r.out = reflect.TypeFor[O]()
	return r
}

// fillLists makes the lists of an answer that are nil empty, so that JSON has no null for them.
func fillLists(v reflect.Value) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Slice && field.IsNil() && field.CanSet() {
			field.Set(reflect.MakeSlice(f.Type, 0, 0))
		}
	}
}

// file returns a route that writes its answer, of one of the media types, by itself.
func file[I any](pattern, does string, media []string, serve func(*call, *I) error) route {
	return route{
		pattern: pattern, does: does, gives: media, in: reflect.TypeFor[I](),
		serve: func(c *call) error {
			var in I
			if err := c.read(&in); err != nil {
				return err
			}
			return serve(c, &in)
		},
	}
}

// sets are the media types of sets of policies.
var sets = []string{mediaYAML, mediaJSON}

// creating returns r, whose answer may be 201.
func creating(r route) route { r.creates = true; return r }

// upload returns r, which reads a body of a set of policies by itself, and has a query.
func upload(r route) route { r.takes = sets; return r }

// queries reports whether the input is the query.
func (r route) queries() bool {
	return len(r.takes) > 0 || strings.HasPrefix(r.pattern, "GET ") || strings.HasPrefix(r.pattern, "DELETE ")
}

// routes returns all routes.
func routes() []route {
	const policy, app = "/api/policies/{name}", "/api/apps/{app}"

	return []route{
		on("GET /api/policies", "A page of policies.", (*call).listPolicies),
		on("GET "+policy, "A policy. Its ETag is the version.", (*call).readPolicy),
		creating(on("PUT "+policy, "Save a policy, or create one with If-None-Match: *.", (*call).savePolicy)),
		on("DELETE "+policy, "Delete a policy.", (*call).deletePolicy),
		on("PUT "+policy+"/mode", "Switch the mode of a policy.", (*call).switchMode),
		on("GET "+policy+"/history", "The history of a policy, the newest version first.", (*call).history),
		on("GET "+policy+"/history/{version}", "One version of a policy.", (*call).revision),
		on("GET "+policy+"/diff", "The fields in which two versions differ.", (*call).diff),
		on("POST "+policy+"/rollback", "Go back to an older version, or restore a deleted policy.", (*call).rollback),
		on("GET "+policy+"/shadow", "What a policy in shadow has seen.", (*call).shadow),

		on("POST "+policy+"/key", "How much of the limit a key has used.", (*call).peekKey),
		on("POST "+policy+"/key/reset", "Make a key fresh.", (*call).resetKey),
		on("POST "+policy+"/key/allow", "Never limit a key.", (*call).allowKey),
		on("POST "+policy+"/key/limit", "Give a key a limit of its own, or take it away.", (*call).limitKey),
		on("POST "+policy+"/key/grant", "Grant a key units beside its limit.", (*call).grantKey),
		on("POST "+policy+"/key/revoke", "Take from a key what it was granted.", (*call).revokeKey),
		on("POST "+policy+"/key/debit", "Charge a key units that it has used.", (*call).debitKey),
		on("GET "+policy+"/bans", "The keys that a policy has banned.", (*call).bans),
		on("POST "+policy+"/bans", "Ban a key for a time.", (*call).imposeBan),
		on("POST "+policy+"/bans/lift", "Lift the ban of a key.", (*call).liftBan),

		on("GET "+policy+"/overrides", "A page of the limits of single keys beside a policy.", (*call).listOverrides),
		on("POST "+policy+"/overrides", "Change up to 1,000 overrides, all or none.", (*call).changeOverrides),
		on("PUT "+policy+"/overrides/{key}", "Set the override of a key, or of a prefix and *.", (*call).setOverride),
		on("DELETE "+policy+"/overrides/{key}", "Remove the override of a key.", (*call).removeOverride),

		on("POST /api/validate", "Check a policy, and save nothing.", (*call).validate),
		on("POST /api/test", "The policies that apply to a request, in their order.", (*call).test),
		file("GET /api/export", "A file of the policies, as YAML or JSON.", sets, (*call).export),
		upload(on("POST /api/import/plan", "What an import would change.", (*call).planImport)),
		upload(on("POST /api/import", "Import policies, all or none.", (*call).applyImport)),
		file("GET /api/overrides", "A file of the overrides of all policies.", []string{mediaJSON},
			(*call).exportOverrides),
		withBody(on("POST /api/overrides/plan", "What an import of overrides would change.", (*call).planOverrides)),
		withBody(on("POST /api/overrides", "Import overrides, all or none.", (*call).importOverrides)),

		on("GET /api/apps", "The applications in which the actor has a role.", (*call).listApps),
		on("GET "+app, "An application.", (*call).readApp),
		creating(on("PUT "+app, "Describe an application, or create it.", (*call).saveApp)),
		on("DELETE "+app, "Delete an application without policies.", (*call).deleteApp),
		on("GET "+app+"/top", "The keys that policies refuse and admit most, in five minutes.", (*call).top),

		on("GET /api/traffic", "The counts of requests, or of the decisions of a policy, over time.", (*call).traffic),
		on("GET /api/traffic/policies", "The decisions by policy.", (*call).trafficByPolicy),
		on("GET /api/traffic/apps", "The requests by application.", (*call).trafficByApp),
		file("GET /api/traffic/csv", "The counts over time as CSV.", []string{"text/csv"}, (*call).trafficCSV),
		on("GET /api/instances", "The instances of applications in which the actor has a role.", (*call).instances),
		on("GET /api/publishing", "Whether the instances can have the newest policies.", (*call).publishing),
		file("POST /api/backup", "A backup for the command restore. It takes a token of the scope backup.",
			[]string{"application/vnd.sqlite3"}, (*call).backup),
		public(file("GET /api/openapi.json", "This description.", []string{mediaJSON}, (*call).openAPI)),
	}
}

// withBody returns r, which reads a JSON body by itself, and has a query.
func withBody(r route) route { r.takes = []string{mediaJSON}; return r }

// public returns r, which is open to all.
func public(r route) route { r.open = true; return r }
