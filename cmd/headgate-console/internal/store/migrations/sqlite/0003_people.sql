-- The browsers in which a user has logged in, by the digest of a cookie's secret.
CREATE TABLE IF NOT EXISTS devices (
  hash TEXT NOT NULL,
  user_name TEXT NOT NULL REFERENCES users (name),
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (user_name, hash)
) STRICT, WITHOUT ROWID;

-- The persons at a provider of OpenID Connect by the digest of issuer and subject. A user is
-- one person, who first logged in at the time at.
CREATE TABLE IF NOT EXISTS identities (
  hash TEXT NOT NULL PRIMARY KEY,
  user_name TEXT NOT NULL UNIQUE REFERENCES users (name),
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'attempts' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
