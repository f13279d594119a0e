package api

import "slices"

// route is a method and path that the API serves.
type route struct {
	pattern string // of http.ServeMux
	serve   func(*call) error
	open    bool     // clients need no credentials
	params  []string // of the query
}

// routes returns all routes.
func routes() []route {
	return slices.Concat(policyRoutes(), setRoutes(), appRoutes(), consoleRoutes())
}

func policyRoutes() []route {
	return []route{
		{pattern: "GET /api/policies", serve: (*call).listPolicies,
			params: []string{"search", "app", "mode", "changed", "refusing", "sort", "page", "per_page"}},
		{pattern: "GET /api/policies/{name}", serve: (*call).readPolicy},

		// One policy and its history.
		{pattern: "PUT /api/policies/{name}", serve: (*call).savePolicy},
		{pattern: "DELETE /api/policies/{name}", serve: (*call).deletePolicy, params: []string{"version", "comment"}},
		{pattern: "PUT /api/policies/{name}/mode", serve: (*call).switchMode},
		{pattern: "GET /api/policies/{name}/history", serve: (*call).history, params: []string{"before", "per_page"}},
		{pattern: "GET /api/policies/{name}/history/{version}", serve: (*call).revision},
		{pattern: "GET /api/policies/{name}/diff", serve: (*call).diff, params: []string{"from", "to"}},
		{pattern: "GET /api/policies/{name}/shadow", serve: (*call).shadow},
		{pattern: "POST /api/policies/{name}/rollback", serve: (*call).rollback},

		// One key under a policy.
		{pattern: "POST /api/policies/{name}/key", serve: (*call).peekKey},
		{pattern: "POST /api/policies/{name}/key/reset", serve: (*call).resetKey},
		{pattern: "GET /api/policies/{name}/bans", serve: (*call).bans},
		{pattern: "POST /api/policies/{name}/bans/lift", serve: (*call).liftBan},
		{pattern: "POST /api/policies/{name}/bans", serve: (*call).imposeBan},
		{pattern: "POST /api/policies/{name}/key/allow", serve: (*call).allowKey},
		{pattern: "POST /api/policies/{name}/key/limit", serve: (*call).limitKey},
		{pattern: "POST /api/policies/{name}/key/grant", serve: (*call).grantKey},
		{pattern: "POST /api/policies/{name}/key/revoke", serve: (*call).revokeKey},
		{pattern: "POST /api/policies/{name}/key/debit", serve: (*call).debitKey},

		// The limits of single keys beside it.
		{pattern: "GET /api/policies/{name}/overrides", serve: (*call).listOverrides,
			params: []string{"search", "after", "per_page"}},
		{pattern: "POST /api/policies/{name}/overrides", serve: (*call).changeOverrides},
		{pattern: "PUT /api/policies/{name}/overrides/{key}", serve: (*call).setOverride},
		{pattern: "DELETE /api/policies/{name}/overrides/{key}", serve: (*call).removeOverride,
			params: []string{"comment"}},

		// What would be, of a policy that is not saved and of a request that is not sent.
		{pattern: "POST /api/validate", serve: (*call).validate},
		{pattern: "POST /api/test", serve: (*call).test},
	}
}

func setRoutes() []route {
	return []route{
		{pattern: "GET /api/export", serve: (*call).export, params: []string{"app", "format"}},
		{pattern: "POST /api/import/plan", serve: (*call).planImport,
			params: []string{"missing", "apps", "comment", "compare", "base"}},
		{pattern: "POST /api/import", serve: (*call).applyImport,
			params: []string{"missing", "apps", "comment", "base"}},
		{pattern: "GET /api/overrides", serve: (*call).exportOverrides, params: []string{"app"}},
		{pattern: "POST /api/overrides/plan", serve: (*call).planOverrides,
			params: []string{"missing", "apps", "compare"}},
		{pattern: "POST /api/overrides", serve: (*call).importOverrides,
			params: []string{"missing", "apps", "comment", "base"}},
	}
}

func appRoutes() []route {
	return []route{
		{pattern: "GET /api/apps", serve: (*call).listApps},
		{pattern: "GET /api/apps/{app}", serve: (*call).readApp},
		{pattern: "PUT /api/apps/{app}", serve: (*call).saveApp},
		{pattern: "DELETE /api/apps/{app}", serve: (*call).deleteApp},
		{pattern: "GET /api/apps/{app}/top", serve: (*call).top},
	}
}

func consoleRoutes() []route {
	return []route{
		{pattern: "GET /api/openapi.json", serve: (*call).description, open: true},
		{pattern: "GET /api/publishing", serve: (*call).publishing},
		{pattern: "GET /api/traffic", serve: (*call).traffic, params: trafficParams},
		{pattern: "GET /api/traffic/policies", serve: (*call).trafficByPolicy,
			params: []string{"app", "from", "to", "step"}},
		{pattern: "GET /api/traffic/apps", serve: (*call).trafficByApp, params: []string{"from", "to", "step"}},
		{pattern: "GET /api/traffic/csv", serve: (*call).trafficCSV, params: trafficParams},
		{pattern: "GET /api/instances", serve: (*call).instances},
		{pattern: "POST /api/backup", serve: (*call).backup},
	}
}
