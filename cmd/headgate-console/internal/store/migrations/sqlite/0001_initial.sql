-- Times are microseconds since the Unix epoch, UTC. Names compare byte by byte.
CREATE TABLE IF NOT EXISTS apps (
  name TEXT NOT NULL PRIMARY KEY,
  description TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS users (
  name TEXT NOT NULL PRIMARY KEY,
  password TEXT NOT NULL,
  administrator INTEGER NOT NULL,
  disabled INTEGER NOT NULL,
  must_change INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  password_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS roles (
  user_name TEXT NOT NULL REFERENCES users (name),
  app TEXT NOT NULL REFERENCES apps (name),
  role TEXT NOT NULL,
  PRIMARY KEY (user_name, app)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS roles_by_app ON roles (app);

CREATE TABLE IF NOT EXISTS policies (
  name TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  mode TEXT NOT NULL,
  priority INTEGER NOT NULL,
  size INTEGER NOT NULL,
  search TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS policies_by_mode ON policies (mode, name);

CREATE INDEX IF NOT EXISTS policies_by_priority ON policies (priority, name);

CREATE INDEX IF NOT EXISTS policies_by_size ON policies (size);

CREATE INDEX IF NOT EXISTS policies_by_update ON policies (updated_at, name);

CREATE TABLE IF NOT EXISTS policy_apps (
  policy TEXT NOT NULL REFERENCES policies (name),
  app TEXT NOT NULL REFERENCES apps (name),
  PRIMARY KEY (policy, app)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS policy_apps_by_app ON policy_apps (app, policy);

CREATE TABLE IF NOT EXISTS revisions (
  policy TEXT NOT NULL,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  body_before TEXT NOT NULL,
  body_after TEXT NOT NULL,
  request_id TEXT NOT NULL,
  note TEXT NOT NULL,
  PRIMARY KEY (policy, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS revisions_keep BEFORE UPDATE ON revisions
BEGIN SELECT RAISE(ABORT, 'revisions are append-only'); END;

CREATE TRIGGER IF NOT EXISTS revisions_stay BEFORE DELETE ON revisions
BEGIN SELECT RAISE(ABORT, 'revisions are append-only'); END;

CREATE INDEX IF NOT EXISTS revisions_by_time ON revisions (at);

CREATE TABLE IF NOT EXISTS audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  via TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  outcome TEXT NOT NULL,
  body_before TEXT NOT NULL,
  body_after TEXT NOT NULL,
  request_id TEXT NOT NULL,
  address TEXT NOT NULL,
  note TEXT NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS audit_by_actor ON audit (actor, id);

CREATE INDEX IF NOT EXISTS audit_by_object ON audit (object, id);

CREATE INDEX IF NOT EXISTS audit_by_act ON audit (object, action, id);

CREATE INDEX IF NOT EXISTS audit_by_outcome ON audit (outcome, id);

CREATE TRIGGER IF NOT EXISTS audit_keep BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

CREATE TRIGGER IF NOT EXISTS audit_stay BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

CREATE INDEX IF NOT EXISTS audit_by_action ON audit (action, id);

CREATE INDEX IF NOT EXISTS audit_by_time ON audit (at, id);

CREATE TABLE IF NOT EXISTS sessions (
  hash TEXT NOT NULL PRIMARY KEY,
  user_name TEXT NOT NULL REFERENCES users (name),
  created_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  address TEXT NOT NULL,
  agent TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS sessions_by_user ON sessions (user_name);

CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (expires_at);

CREATE TABLE IF NOT EXISTS tokens (
  id TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  user_name TEXT NOT NULL REFERENCES users (name),
  label TEXT NOT NULL,
  scope TEXT NOT NULL,
  apps TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  revoked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS tokens_by_user ON tokens (user_name);

CREATE TABLE IF NOT EXISTS settings (
  name TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS counters (
  name TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'policies' AS name UNION SELECT 'published' UNION SELECT 'users' UNION SELECT 'traffic'
UNION SELECT 'attempts' UNION SELECT 'alerts' UNION SELECT 'webhooks' UNION SELECT 'overrides'
UNION SELECT 'overrides_published') n
WHERE n.name NOT IN (SELECT name FROM counters);

-- The counts of requests and of decisions. A series is one policy of one application; the
-- policy '' stands for the requests of the application, the policy '*' for the policies that
-- instances do not tell apart, and the application '' for all applications together.
CREATE TABLE IF NOT EXISTS traffic_series (
  id INTEGER PRIMARY KEY,
  app TEXT NOT NULL,
  policy TEXT NOT NULL,
  UNIQUE (app, policy)
) STRICT;

CREATE INDEX IF NOT EXISTS traffic_series_by_policy ON traffic_series (policy);

-- One row for each span of level minutes in which a series has counts. The column at is the
-- span's first minute since the Unix epoch.
CREATE TABLE IF NOT EXISTS traffic (
  level INTEGER NOT NULL,
  series INTEGER NOT NULL,
  at INTEGER NOT NULL,
  allowed INTEGER NOT NULL,
  waited INTEGER NOT NULL,
  degraded INTEGER NOT NULL,
  shadow_refused INTEGER NOT NULL,
  failed_open INTEGER NOT NULL,
  refused INTEGER NOT NULL,
  banned INTEGER NOT NULL,
  impossible INTEGER NOT NULL,
  denied INTEGER NOT NULL,
  queue_full INTEGER NOT NULL,
  canceled INTEGER NOT NULL,
  failed_closed INTEGER NOT NULL,
  overruled INTEGER NOT NULL,
  lost INTEGER NOT NULL,
  PRIMARY KEY (level, series, at)
) STRICT, WITHOUT ROWID;

-- Until when the counts of an application were collected, in microseconds of Redis's clock.
CREATE TABLE IF NOT EXISTS traffic_collected (
  app TEXT NOT NULL PRIMARY KEY,
  until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The policies that do not exist any more, by the revision that deleted them.
CREATE TABLE IF NOT EXISTS deleted_policies (
  policy TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS deleted_policies_by_time ON deleted_policies (at, policy);

-- The browsers in which a user has logged in, by the digest of a cookie's secret.
CREATE TABLE IF NOT EXISTS devices (
  hash TEXT NOT NULL,
  user_name TEXT NOT NULL REFERENCES users (name),
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (user_name, hash)
) STRICT, WITHOUT ROWID;

-- The persons at a provider of OpenID Connect by the digest of issuer and subject. A user is
-- one person, who first logged in at the time at.
CREATE TABLE IF NOT EXISTS identities (
  hash TEXT NOT NULL PRIMARY KEY,
  user_name TEXT NOT NULL UNIQUE REFERENCES users (name),
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The second factors of users. A factor that is not confirmed belongs to the session that
-- sets it up. No code of the time step last_step or before it is accepted again.
CREATE TABLE IF NOT EXISTS second_factors (
  user_name TEXT NOT NULL PRIMARY KEY REFERENCES users (name),
  secret TEXT NOT NULL,
  session TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  confirmed_at INTEGER NOT NULL,
  last_step INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The recovery codes that were not used, by their digests.
CREATE TABLE IF NOT EXISTS recovery_codes (
  user_name TEXT NOT NULL REFERENCES users (name),
  hash TEXT NOT NULL,
  PRIMARY KEY (user_name, hash)
) STRICT, WITHOUT ROWID;

-- The log-ins that wait for a code after the right password, by the digest of a cookie's
-- secret.
CREATE TABLE IF NOT EXISTS pending_logins (
  hash TEXT NOT NULL PRIMARY KEY,
  user_name TEXT NOT NULL REFERENCES users (name),
  password_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS pending_logins_by_user ON pending_logins (user_name);

CREATE INDEX IF NOT EXISTS pending_logins_by_end ON pending_logins (expires_at);

-- The sessions that began at a provider of OpenID Connect.
CREATE TABLE IF NOT EXISTS provider_sessions (
  hash TEXT NOT NULL PRIMARY KEY REFERENCES sessions (hash) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What the author of a change said about it.
CREATE TABLE IF NOT EXISTS comments (
  policy TEXT NOT NULL,
  version INTEGER NOT NULL,
  comment TEXT NOT NULL,
  PRIMARY KEY (policy, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS comments_keep BEFORE UPDATE ON comments
BEGIN SELECT RAISE(ABORT, 'comments are append-only'); END;

CREATE TRIGGER IF NOT EXISTS comments_stay BEFORE DELETE ON comments
BEGIN SELECT RAISE(ABORT, 'comments are append-only'); END;

-- How often the rows of an application in traffic were changed. A reader that finds the
-- version that it knows need not read the rows again.
CREATE TABLE IF NOT EXISTS traffic_versions (
  app TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where alerts are sent. apps is a list in JSON, and empty for all applications; conditions is
-- what they are about, in JSON. The secret before the last one signs, too, for some time after
-- renewed_at.
CREATE TABLE IF NOT EXISTS webhooks (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  url TEXT NOT NULL,
  apps TEXT NOT NULL,
  conditions TEXT NOT NULL,
  repeat_after INTEGER NOT NULL,
  enabled INTEGER NOT NULL,
  secret TEXT NOT NULL,
  secret_before TEXT NOT NULL,
  renewed_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The alerts that stand or may begin: first_at is when the condition was seen first, since is
-- when the alert began, or 0, and told_at is when it was told last. The application '' stands for
-- what concerns all of them.
CREATE TABLE IF NOT EXISTS alerts (
  webhook TEXT NOT NULL,
  kind TEXT NOT NULL,
  app TEXT NOT NULL,
  first_at INTEGER NOT NULL,
  since INTEGER NOT NULL,
  told_at INTEGER NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (webhook, kind, app)
) STRICT, WITHOUT ROWID;

-- The messages. The state is waiting, done or failed. A message that waits is tried at next_at, by
-- the console that has raised attempts.
CREATE TABLE IF NOT EXISTS deliveries (
  id TEXT NOT NULL PRIMARY KEY,
  webhook TEXT NOT NULL,
  event TEXT NOT NULL,
  kind TEXT NOT NULL,
  app TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  status INTEGER NOT NULL,
  error TEXT NOT NULL,
  tried_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS deliveries_by_state ON deliveries (state, created_at);

CREATE INDEX IF NOT EXISTS deliveries_by_webhook ON deliveries (webhook, created_at);

-- The limits of single keys that stand beside the policies. A limit has its end in its text, and is
-- "" for a key whose override was removed, until that is published. The pattern "" is all keys. A
-- revision is of one change.
CREATE TABLE IF NOT EXISTS overrides (
  policy TEXT NOT NULL,
  pattern TEXT NOT NULL,
  limit_text TEXT NOT NULL,
  revision INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (policy, pattern)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS overrides_by_revision ON overrides (revision);

CREATE INDEX IF NOT EXISTS overrides_by_limit ON overrides (limit_text, revision);

CREATE INDEX IF NOT EXISTS overrides_by_ban ON overrides (policy, limit_text);

-- Those that a policy had when it was deleted, for when it is restored.
CREATE TABLE IF NOT EXISTS deleted_overrides (
  policy TEXT NOT NULL,
  pattern TEXT NOT NULL,
  limit_text TEXT NOT NULL,
  revision INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (policy, pattern)
) STRICT, WITHOUT ROWID;

-- Policies that are in shadow or off until a time. The reason is why one did not go back then.
CREATE TABLE IF NOT EXISTS pauses (
  policy TEXT NOT NULL PRIMARY KEY,
  mode_after TEXT NOT NULL,
  until_at INTEGER NOT NULL,
  user_name TEXT NOT NULL REFERENCES users (name),
  via TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
