-- The limits of single keys that stand beside the policies. A limit has its end
-- in its text, and is "" for a key whose override was removed, until that is published. The pattern
-- "" is all keys. A revision is of one change.
CREATE TABLE IF NOT EXISTS overrides (
  policy TEXT NOT NULL,
  pattern TEXT NOT NULL,
  limit_text TEXT NOT NULL,
  revision INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (policy, pattern)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS overrides_by_revision ON overrides (revision);

CREATE INDEX IF NOT EXISTS overrides_by_limit ON overrides (limit_text, revision);

-- Those that a policy had when it was deleted, for when it is restored.
CREATE TABLE IF NOT EXISTS deleted_overrides (
  policy TEXT NOT NULL,
  pattern TEXT NOT NULL,
  limit_text TEXT NOT NULL,
  revision INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT NOT NULL,
  PRIMARY KEY (policy, pattern)
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'overrides' AS name UNION ALL SELECT 'overrides_published') n
WHERE n.name NOT IN (SELECT name FROM counters);
