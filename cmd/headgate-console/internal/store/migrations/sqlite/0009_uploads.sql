-- The text of an import whose plan a user was shown, until the user confirms it: the last one of
-- each user.
CREATE TABLE IF NOT EXISTS uploads (
  user_name TEXT NOT NULL PRIMARY KEY REFERENCES users (name),
  digest TEXT NOT NULL,
  at INTEGER NOT NULL,
  data BLOB NOT NULL
) STRICT;
