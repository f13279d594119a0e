package web

// route is a page, or the action of a form.
type route struct {
	pattern string
	answer  func(*request) error
	open    bool // requires no log-in
	poll    bool // pages ask for it by themselves

	// admit, unless nil, asks for permission before a form of up to maxBytes is read. done is
	// called after the answer. Other forms have up to maxForm.
	admit    func(*request) (done func(), err error)
	maxBytes int64
}

// routes are all routes of the pages, apart from files.
var routes = []route{
	// The traffic, and the way in and out.
	{pattern: "GET /{$}", answer: trafficPage},
	{pattern: "GET /live", answer: liveTraffic, poll: true},
	{pattern: "GET /search", answer: searchPage},
	{pattern: "GET /login", answer: loginPage, open: true},
	{pattern: "POST /login", answer: login, open: true},
	{pattern: "GET /login/code", answer: codePage, open: true},
	{pattern: "POST /login/code", answer: loginCode, open: true},
	{pattern: "GET /login/oidc", answer: oidcBegin, open: true},
	{pattern: "GET /login/oidc/callback", answer: oidcEnd, open: true},
	{pattern: "POST /logout", answer: logout},

	// Policies, their list and their form.
	{pattern: "GET /policies", answer: listPage},
	{pattern: "POST /policies/bulk", answer: bulkChange},
	{pattern: "POST /policies/undo", answer: undoBulk},
	{pattern: "GET /deleted", answer: deletedPage},
	{pattern: "GET /banner", answer: liveBanner, poll: true},
	{pattern: "GET /unable", answer: liveUnable, poll: true},
	// One policy.
	{pattern: "GET /new", answer: newPage},
	{pattern: "POST /new", answer: create},
	{pattern: "GET /policies/{name}", answer: policyPage},
	{pattern: "GET /policies/{name}/live", answer: livePolicy, poll: true},
	{pattern: "GET /policies/{name}/edit", answer: editPage},
	{pattern: "POST /policies/{name}/edit", answer: update},
	{pattern: "POST /policies/{name}/mode", answer: setMode},
	{pattern: "POST /policies/{name}/overrides", answer: setOverride},
	{pattern: "GET /policies/{name}/delete", answer: deletePage},
	{pattern: "POST /policies/{name}/delete", answer: remove},
	{pattern: "GET /policies/{name}/history", answer: historyPage},
	{pattern: "GET /policies/{name}/diff", answer: comparePage},
	{pattern: "POST /policies/{name}/rollback", answer: rollback},
	{pattern: "POST /policies/{name}/undo", answer: takeBack},
	{pattern: "POST /policies/{name}/pause", answer: stay},
	// The preview of a form.
	{pattern: "GET /validate", answer: validate},
	{pattern: "GET /drawing.svg", answer: draw},

	// Keys.
	{pattern: "GET /keys", answer: keysPage},
	{pattern: "GET /keys/live", answer: liveKeys, poll: true},
	{pattern: "POST /keys/try", answer: tryRequest},
	{pattern: "POST /keys/reset", answer: resetKey},
	{pattern: "POST /keys/ban", answer: banKey},
	{pattern: "POST /keys/lift", answer: liftBan},
	{pattern: "POST /keys/limit", answer: limitKey},
	{pattern: "POST /keys/allow", answer: allowKey},
	{pattern: "POST /keys/grant", answer: grantKey},
	{pattern: "POST /keys/revoke", answer: revokeKey},
	{pattern: "POST /keys/debit", answer: debitKey},

	// Alerts.
	{pattern: "GET /alerts", answer: alertsPage},
	{pattern: "POST /alerts", answer: createHook},
	{pattern: "POST /alerts/{webhook}", answer: updateHook},
	{pattern: "POST /alerts/{webhook}/status", answer: switchHook},
	{pattern: "POST /alerts/{webhook}/secret", answer: renewHook},
	{pattern: "POST /alerts/{webhook}/test", answer: testHook},
	{pattern: "POST /alerts/{webhook}/delete", answer: deleteHook},

	// Imports and exports.
	{pattern: "GET /import", answer: importPage},
	{pattern: "POST /import", answer: sendImport, maxBytes: maxImport, admit: admitImport},
	{pattern: "GET /export", answer: export},

	// Applications, users, the audit log and the settings.
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
	{pattern: "POST /users/{name}/second-factor", answer: removeFactor},
	{pattern: "POST /users/{name}/tokens", answer: endTokensOf},
	{pattern: "GET /audit", answer: auditPage},
	{pattern: "GET /audit/export", answer: exportAudit},
	{pattern: "GET /takeover", answer: takeoverPage},
	{pattern: "POST /takeover", answer: takeOver},
	{pattern: "GET /settings", answer: settingsPage},
	{pattern: "POST /settings", answer: saveSettings},
	{pattern: "POST /settings/backup", answer: downloadBackup},

	// A user's own account.
	{pattern: "GET /account", answer: accountPage},
	{pattern: "POST /account/password", answer: changePassword},
	{pattern: "GET /account/second-factor", answer: factorPage},
	{pattern: "POST /account/second-factor", answer: beginFactor},
	{pattern: "POST /account/second-factor/confirm", answer: confirmFactor},
	{pattern: "POST /account/second-factor/codes", answer: renewRecovery},
	{pattern: "POST /account/second-factor/off", answer: disableFactor},
	{pattern: "POST /account/sessions/end", answer: endSession},
	{pattern: "POST /account/tokens", answer: createToken},
	{pattern: "POST /account/tokens/revoke", answer: revokeToken},
}
