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

-- How many instances of an application are expected to report: more, if more did since
-- higher_at, of which higher is the smallest number, and fewer, some time after lower_at.
CREATE TABLE IF NOT EXISTS alert_fleets (
  app TEXT NOT NULL PRIMARY KEY,
  expected INTEGER NOT NULL,
  higher INTEGER NOT NULL,
  higher_at INTEGER NOT NULL,
  lower_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'alerts' AS name UNION SELECT 'webhooks') n
WHERE n.name NOT IN (SELECT name FROM counters);
