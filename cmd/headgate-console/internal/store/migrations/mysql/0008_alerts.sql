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

-- How many instances of an application are expected to report: more, if more did since
-- higher_at, of which higher is the smallest number, and fewer, some time after lower_at.
CREATE TABLE IF NOT EXISTS alert_fleets (
  app VARCHAR(64) NOT NULL PRIMARY KEY,
  expected BIGINT NOT NULL,
  higher BIGINT NOT NULL,
  higher_at BIGINT NOT NULL,
  lower_at BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'alerts' AS name UNION SELECT 'webhooks') n
WHERE n.name NOT IN (SELECT name FROM counters);
