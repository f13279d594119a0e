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

CREATE INDEX IF NOT EXISTS audit_by_outcome ON audit (outcome, id);

CREATE TRIGGER IF NOT EXISTS audit_keep BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

CREATE TRIGGER IF NOT EXISTS audit_stay BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;

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
SELECT n.name, 0, 0 FROM (SELECT 'policies' AS name UNION SELECT 'published' UNION SELECT 'users') n
WHERE n.name NOT IN (SELECT name FROM counters);
