-- What the author of a change said about it.
CREATE TABLE IF NOT EXISTS comments (
  policy VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  comment TEXT NOT NULL,
  PRIMARY KEY (policy, version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Changes of policies that are made at a time. The state is waiting, done, failed or canceled.
CREATE TABLE IF NOT EXISTS scheduled (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  policy VARCHAR(64) NOT NULL,
  base BIGINT NOT NULL,
  body_before MEDIUMTEXT NOT NULL,
  body_after MEDIUMTEXT NOT NULL,
  due_at BIGINT NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  via VARCHAR(96) NOT NULL,
  created_at BIGINT NOT NULL,
  comment TEXT NOT NULL,
  state VARCHAR(16) NOT NULL,
  ended_at BIGINT NOT NULL,
  reason TEXT NOT NULL,
  INDEX scheduled_by_due (state, due_at, id),
  INDEX scheduled_by_policy (policy, state, due_at),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'scheduled' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
