-- What the author of a change said about it.
CREATE TABLE IF NOT EXISTS comments (
  policy TEXT NOT NULL,
  version INTEGER NOT NULL,
  comment TEXT NOT NULL,
  PRIMARY KEY (policy, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS comments_keep BEFORE UPDATE ON comments
BEGIN SELECT RAISE(ABORT, 'comments are append-only'); END;

CREATE TRIGGER IF NOT EXISTS comments_stay BEFORE DELETE ON comments
BEGIN SELECT RAISE(ABORT, 'comments are append-only'); END;

-- Changes of policies that are made at a time. The state is waiting, done, failed or canceled.
CREATE TABLE IF NOT EXISTS scheduled (
  id TEXT NOT NULL PRIMARY KEY,
  policy TEXT NOT NULL,
  base INTEGER NOT NULL,
  body_before TEXT NOT NULL,
  body_after TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  user_name TEXT NOT NULL REFERENCES users (name),
  via TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  comment TEXT NOT NULL,
  state TEXT NOT NULL,
  ended_at INTEGER NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS scheduled_by_due ON scheduled (state, due_at, id);

CREATE INDEX IF NOT EXISTS scheduled_by_policy ON scheduled (policy, state, due_at);

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'scheduled' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
