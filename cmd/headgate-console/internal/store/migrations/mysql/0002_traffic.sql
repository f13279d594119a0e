-- The counts of requests and of decisions. A series is one policy of one application; the
-- policy '' stands for the requests of the application, the policy '*' for the policies that
-- instances do not tell apart, and the application '' for all applications together.
CREATE TABLE IF NOT EXISTS traffic_series (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  app VARCHAR(64) NOT NULL,
  policy VARCHAR(256) NOT NULL,
  UNIQUE (app, policy)
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

INSERT INTO deleted_policies (policy, version, at)
SELECT r.policy, r.version, r.at FROM revisions r
WHERE r.body_after = '' AND r.version = (SELECT MAX(x.version) FROM revisions x WHERE x.policy = r.policy)
AND r.policy NOT IN (SELECT policy FROM deleted_policies);

CREATE INDEX revisions_by_time ON revisions (at);

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'traffic' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
