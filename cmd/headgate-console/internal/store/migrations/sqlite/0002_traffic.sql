-- The counts of requests and of decisions. A series is one policy of one application; the
-- policy '' stands for the requests of the application, the policy '*' for the policies that
-- instances do not tell apart, and the application '' for all applications together.
CREATE TABLE IF NOT EXISTS traffic_series (
  id INTEGER PRIMARY KEY,
  app TEXT NOT NULL,
  policy TEXT NOT NULL,
  UNIQUE (app, policy)
) STRICT;

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

INSERT INTO deleted_policies (policy, version, at)
SELECT r.policy, r.version, r.at FROM revisions r
WHERE r.body_after = '' AND r.version = (SELECT MAX(x.version) FROM revisions x WHERE x.policy = r.policy)
AND r.policy NOT IN (SELECT policy FROM deleted_policies);

CREATE INDEX IF NOT EXISTS revisions_by_time ON revisions (at);

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'traffic' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
