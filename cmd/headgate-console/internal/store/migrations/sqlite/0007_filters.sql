-- The filters of the list of policies that users have saved, each for themselves.
CREATE TABLE IF NOT EXISTS filters (
  user_name TEXT NOT NULL REFERENCES users (name),
  name TEXT NOT NULL,
  query TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (user_name, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS traffic_series_by_policy ON traffic_series (policy);
