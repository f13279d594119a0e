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
  PRIMARY KEY (policy, version)
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
  INDEX audit_by_outcome (outcome, id)
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
SELECT n.name, 0, 0 FROM (SELECT 'policies' AS name UNION SELECT 'published' UNION SELECT 'users') n
WHERE n.name NOT IN (SELECT name FROM counters);
