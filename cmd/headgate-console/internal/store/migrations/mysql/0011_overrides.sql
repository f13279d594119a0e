-- The limits of single keys that stand beside the policies. A limit has its end
-- in its text, and is "" for a key whose override was removed, until that is published. The pattern
-- "" is all keys. A revision is of one change. A pattern
-- is binary, as a space at its end counts.
CREATE TABLE IF NOT EXISTS overrides (
  policy VARCHAR(64) NOT NULL,
  pattern VARBINARY(512) NOT NULL,
  limit_text VARCHAR(255) NOT NULL,
  revision BIGINT NOT NULL,
  changed_at BIGINT NOT NULL,
  changed_by VARCHAR(64) NOT NULL,
  PRIMARY KEY (policy, pattern),
  INDEX overrides_by_revision (revision),
  INDEX overrides_by_limit (limit_text, revision)
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

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'overrides' AS name UNION ALL SELECT 'overrides_published') n
WHERE n.name NOT IN (SELECT name FROM counters);
