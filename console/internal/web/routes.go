package web

// route is a page, or the action of a form.
type route struct {
	pattern  string
	answer   func(*request) error
	open     bool  // requires no log-in
	maxBytes int64 // bytes of a form; 0 means maxForm
}

// routes are all routes of the pages, apart from files.
func routes() []route {
	return []route{
		{pattern: "GET /{$}", answer: home},
		{pattern: "GET /login", answer: loginPage, open: true},
		{pattern: "POST /login", answer: login, open: true},
		{pattern: "POST /logout", answer: logout},

		{pattern: "GET /policies", answer: listPage},
		{pattern: "GET /deleted", answer: deletedPage},
		{pattern: "GET /new", answer: newPage},
		{pattern: "POST /new", answer: create},
		{pattern: "GET /policies/{name}", answer: policyPage},
		{pattern: "GET /policies/{name}/edit", answer: editPage},
		{pattern: "POST /policies/{name}/edit", answer: update},
		{pattern: "POST /policies/{name}/mode", answer: setMode},
		{pattern: "GET /policies/{name}/delete", answer: deletePage},
		{pattern: "POST /policies/{name}/delete", answer: remove},
		{pattern: "GET /policies/{name}/history", answer: historyPage},
		{pattern: "POST /policies/{name}/rollback", answer: rollback},
		{pattern: "GET /validate", answer: validate},
		{pattern: "GET /drawing.svg", answer: draw},

		{pattern: "GET /tester", answer: testerPage},
		{pattern: "POST /tester", answer: try},
		{pattern: "GET /keys", answer: keysPage},
		{pattern: "POST /keys", answer: lookUp},
		{pattern: "POST /keys/reset", answer: resetKey},
		{pattern: "GET /bans", answer: bansPage},
		{pattern: "POST /bans/lift", answer: liftBan},
		{pattern: "GET /stats", answer: statsPage},
		{pattern: "GET /stats/live", answer: liveStats},

		{pattern: "GET /import", answer: importPage},
		{pattern: "POST /import", answer: planImport, maxBytes: maxImport},
		{pattern: "POST /import/apply", answer: applyImport, maxBytes: maxImport},
		{pattern: "GET /export", answer: export},

		{pattern: "GET /apps", answer: appsPage},
		{pattern: "POST /apps", answer: createApp},
		{pattern: "POST /apps/describe", answer: describeApp},
		{pattern: "GET /apps/delete", answer: deleteAppPage},
		{pattern: "POST /apps/delete", answer: deleteApp},
		{pattern: "GET /users", answer: usersPage},
		{pattern: "POST /users", answer: createUser},
		{pattern: "GET /users/{name}", answer: userPage},
		{pattern: "POST /users/{name}/role", answer: setRole},
		{pattern: "POST /users/{name}/status", answer: setStatus},
		{pattern: "POST /users/{name}/password", answer: resetPassword},
		{pattern: "GET /audit", answer: auditPage},
		{pattern: "GET /settings", answer: settingsPage},
		{pattern: "POST /settings", answer: saveSettings},

		{pattern: "GET /account", answer: accountPage},
		{pattern: "POST /account/password", answer: changePassword},
		{pattern: "POST /account/sessions/end", answer: endSession},
		{pattern: "POST /account/tokens", answer: createToken},
		{pattern: "POST /account/tokens/revoke", answer: revokeToken},
	}
}
