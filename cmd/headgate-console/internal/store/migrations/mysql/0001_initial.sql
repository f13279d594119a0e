-- Times are microseconds since the Unix epoch, UTC. Names compare byte by byte.
CREATE TABLE IF NOT EXISTS apps (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  description TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(64) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS users (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  password VARCHAR(255) NOT NULL,
  administrator TINYINT NOT NULL,
  disabled TINYINT NOT NULL,
  must_change TINYINT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(64) NOT NULL,
  password_at BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS roles (
  user_name VARCHAR(64) NOT NULL,
  app VARCHAR(64) NOT NULL,
  role VARCHAR(16) NOT NULL,
  PRIMARY KEY (user_name, app),
  INDEX roles_by_app (app),
  FOREIGN KEY (user_name) REFERENCES users (name),
  FOREIGN KEY (app) REFERENCES apps (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS policies (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  mode VARCHAR(16) NOT NULL,
  priority BIGINT NOT NULL,
  size BIGINT NOT NULL,
  search MEDIUMTEXT NOT NULL,
  body MEDIUMTEXT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(64) NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(64) NOT NULL,
  INDEX policies_by_mode (mode, name),
  INDEX policies_by_priority (priority, name),
  INDEX policies_by_size (size),
  INDEX policies_by_update (updated_at, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS policy_apps (
  policy VARCHAR(64) NOT NULL,
  app VARCHAR(64) NOT NULL,
  PRIMARY KEY (policy, app),
  INDEX policy_apps_by_app (app, policy),
  FOREIGN KEY (policy) REFERENCES policies (name),
  FOREIGN KEY (app) REFERENCES apps (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS revisions (
  policy VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  at BIGINT NOT NULL,
  actor VARCHAR(64) NOT NULL,
  action VARCHAR(64) NOT NULL,
  body_before MEDIUMTEXT NOT NULL,
  body_after MEDIUMTEXT NOT NULL,
  request_id VARCHAR(128) NOT NULL,
  note TEXT NOT NULL,
  PRIMARY KEY (policy, version),
  INDEX revisions_by_time (at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS audit (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at BIGINT NOT NULL,
  actor VARCHAR(64) NOT NULL,
  via VARCHAR(96) NOT NULL,
  action VARCHAR(64) NOT NULL,
  object VARCHAR(160) NOT NULL,
  outcome VARCHAR(16) NOT NULL,
  body_before MEDIUMTEXT NOT NULL,
  body_after MEDIUMTEXT NOT NULL,
  request_id VARCHAR(128) NOT NULL,
  address VARCHAR(128) NOT NULL,
  note TEXT NOT NULL,
  INDEX audit_by_actor (actor, id),
  INDEX audit_by_object (object, id),
  INDEX audit_by_act (object, action, id),
  INDEX audit_by_outcome (outcome, id),
  INDEX audit_by_action (action, id),
  INDEX audit_by_time (at, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS sessions (
  hash CHAR(64) NOT NULL PRIMARY KEY,
  user_name VARCHAR(64) NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  address VARCHAR(128) NOT NULL,
  agent VARCHAR(256) NOT NULL,
  INDEX sessions_by_user (user_name),
  INDEX sessions_by_end (expires_at),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS tokens (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  hash CHAR(64) NOT NULL UNIQUE,
  user_name VARCHAR(64) NOT NULL,
  label VARCHAR(128) NOT NULL,
  scope VARCHAR(16) NOT NULL,
  apps MEDIUMTEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL,
  revoked_at BIGINT NOT NULL,
  INDEX tokens_by_user (user_name),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS settings (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS counters (
  name VARCHAR(64) NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL,
  at BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'policies' AS name UNION SELECT 'published' UNION SELECT 'users' UNION SELECT 'traffic'
UNION SELECT 'attempts' UNION SELECT 'alerts' UNION SELECT 'webhooks' UNION SELECT 'overrides'
UNION SELECT 'overrides_published') n
WHERE n.name NOT IN (SELECT name FROM counters);

-- The counts of requests and of decisions. A series is one policy of one application; the
-- policy '' stands for the requests of the application, the policy '*' for the policies that
-- instances do not tell apart, and the application '' for all applications together.
CREATE TABLE IF NOT EXISTS traffic_series (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  app VARCHAR(64) NOT NULL,
  policy VARCHAR(256) NOT NULL,
  UNIQUE (app, policy),
  INDEX traffic_series_by_policy (policy)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row for each span of level minutes in which a series has counts. The column at is the
-- span's first minute since the Unix epoch.
CREATE TABLE IF NOT EXISTS traffic (
  level INT NOT NULL,
  series BIGINT NOT NULL,
  at BIGINT NOT NULL,
  allowed BIGINT NOT NULL,
  waited BIGINT NOT NULL,
  degraded BIGINT NOT NULL,
  shadow_refused BIGINT NOT NULL,
  failed_open BIGINT NOT NULL,
  refused BIGINT NOT NULL,
  banned BIGINT NOT NULL,
  impossible BIGINT NOT NULL,
  denied BIGINT NOT NULL,
  queue_full BIGINT NOT NULL,
  canceled BIGINT NOT NULL,
  failed_closed BIGINT NOT NULL,
  overruled BIGINT NOT NULL,
  lost BIGINT NOT NULL,
  PRIMARY KEY (level, series, at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Until when the counts of an application were collected, in microseconds of Redis's clock.
CREATE TABLE IF NOT EXISTS traffic_collected (
  app VARCHAR(64) NOT NULL PRIMARY KEY,
  until BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The policies that do not exist any more, by the revision that deleted them.
CREATE TABLE IF NOT EXISTS deleted_policies (
  policy VARCHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  at BIGINT NOT NULL,
  INDEX deleted_policies_by_time (at, policy)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The browsers in which a user has logged in, by the digest of a cookie's secret.
CREATE TABLE IF NOT EXISTS devices (
  hash CHAR(64) NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (user_name, hash),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The persons at a provider of OpenID Connect by the digest of issuer and subject. A user is
-- one person, who first logged in at the time at.
CREATE TABLE IF NOT EXISTS identities (
  hash CHAR(64) NOT NULL PRIMARY KEY,
  user_name VARCHAR(64) NOT NULL UNIQUE,
  at BIGINT NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The second factors of users. A factor that is not confirmed belongs to the session that
-- sets it up. No code of the time step last_step or before it is accepted again.
CREATE TABLE IF NOT EXISTS second_factors (
  user_name VARCHAR(64) NOT NULL PRIMARY KEY,
  secret VARCHAR(255) NOT NULL,
  session CHAR(64) NOT NULL,
  created_at BIGINT NOT NULL,
  confirmed_at BIGINT NOT NULL,
  last_step BIGINT NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The recovery codes that were not used, by their digests.
CREATE TABLE IF NOT EXISTS recovery_codes (
  user_name VARCHAR(64) NOT NULL,
  hash CHAR(64) NOT NULL,
  PRIMARY KEY (user_name, hash),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The log-ins that wait for a code after the right password, by the digest of a cookie's
-- secret.
CREATE TABLE IF NOT EXISTS pending_logins (
  hash CHAR(64) NOT NULL PRIMARY KEY,
  user_name VARCHAR(64) NOT NULL,
  password_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  INDEX pending_logins_by_user (user_name),
  INDEX pending_logins_by_end (expires_at),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The sessions that began at a provider of OpenID Connect.
CREATE TABLE IF NOT EXISTS provider_sessions (
  hash CHAR(64) NOT NULL PRIMARY KEY,
  FOREIGN KEY (hash) REFERENCES sessions (hash) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What the author of a change said about it.
CREATE TABLE IF NOT EXISTS comments (
  policy VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  comment TEXT NOT NULL,
  PRIMARY KEY (policy, version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How often the rows of an application in traffic were changed. A reader that finds the
-- version that it knows need not read the rows again.
CREATE TABLE IF NOT EXISTS traffic_versions (
  app VARCHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Where alerts are sent. apps is a list in JSON, and empty for all applications; conditions is
-- what they are about, in JSON. The secret before the last one signs, too, for some time after
-- renewed_at.
CREATE TABLE IF NOT EXISTS webhooks (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  name VARCHAR(128) NOT NULL,
  url TEXT NOT NULL,
  apps MEDIUMTEXT NOT NULL,
  conditions TEXT NOT NULL,
  repeat_after BIGINT NOT NULL,
  enabled BIGINT NOT NULL,
  secret VARCHAR(128) NOT NULL,
  secret_before VARCHAR(128) NOT NULL,
  renewed_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(64) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The alerts that stand or may begin: first_at is when the condition was seen first, since is
-- when the alert began, or 0, and told_at is when it was told last. The application '' stands for
-- what concerns all of them.
CREATE TABLE IF NOT EXISTS alerts (
  webhook VARCHAR(32) NOT NULL,
  kind VARCHAR(32) NOT NULL,
  app VARCHAR(64) NOT NULL,
  first_at BIGINT NOT NULL,
  since BIGINT NOT NULL,
  told_at BIGINT NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (webhook, kind, app)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The messages. The state is waiting, done or failed. A message that waits is tried at next_at, by
-- the console that has raised attempts.
CREATE TABLE IF NOT EXISTS deliveries (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  webhook VARCHAR(32) NOT NULL,
  event VARCHAR(32) NOT NULL,
  kind VARCHAR(32) NOT NULL,
  app VARCHAR(64) NOT NULL,
  body TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  state VARCHAR(16) NOT NULL,
  attempts BIGINT NOT NULL,
  next_at BIGINT NOT NULL,
  status BIGINT NOT NULL,
  error TEXT NOT NULL,
  tried_at BIGINT NOT NULL,
  INDEX deliveries_by_state (state, created_at),
  INDEX deliveries_by_webhook (webhook, created_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The limits of single keys that stand beside the policies. A limit has its end in its text, and is
-- "" for a key whose override was removed, until that is published. The pattern "" is all keys. A
-- pattern is binary, as a space at its end counts. A revision is of one change.
CREATE TABLE IF NOT EXISTS overrides (
  policy VARCHAR(64) NOT NULL,
  pattern VARBINARY(512) NOT NULL,
  limit_text VARCHAR(255) NOT NULL,
  revision BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  changed_by VARCHAR(64) NOT NULL,
  PRIMARY KEY (policy, pattern),
  INDEX overrides_by_revision (revision),
  INDEX overrides_by_limit (limit_text, revision),
  INDEX overrides_by_ban (policy, limit_text)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Those that a policy had when it was deleted, for when it is restored.
CREATE TABLE IF NOT EXISTS deleted_overrides (
  policy VARCHAR(64) NOT NULL,
  pattern VARBINARY(512) NOT NULL,
  limit_text VARCHAR(255) NOT NULL,
  revision BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  changed_by VARCHAR(64) NOT NULL,
  PRIMARY KEY (policy, pattern)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Policies that are in shadow or off until a time. The reason is why one did not go back then.
CREATE TABLE IF NOT EXISTS pauses (
  policy VARCHAR(64) NOT NULL PRIMARY KEY,
  mode_after VARCHAR(16) NOT NULL,
  until_at BIGINT NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  via VARCHAR(96) NOT NULL,
  reason TEXT NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
