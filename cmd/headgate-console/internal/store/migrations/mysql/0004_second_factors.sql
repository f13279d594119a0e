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

CREATE INDEX audit_by_action ON audit (action, id);

CREATE INDEX audit_by_time ON audit (at, id);
