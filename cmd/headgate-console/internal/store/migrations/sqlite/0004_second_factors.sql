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

CREATE INDEX IF NOT EXISTS audit_by_action ON audit (action, id);

CREATE INDEX IF NOT EXISTS audit_by_time ON audit (at, id);
