-- The browsers in which a user has logged in, by the digest of a cookie's secret.
CREATE TABLE IF NOT EXISTS devices (
  hash CHAR(64) NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (user_name, hash),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The persons at a provider of OpenID Connect by the digest of issuer and subject. A user is
-- one person, who first logged in at the time at.
CREATE TABLE IF NOT EXISTS identities (
  hash CHAR(64) NOT NULL PRIMARY KEY,
  user_name VARCHAR(64) NOT NULL UNIQUE,
  at BIGINT NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO counters (name, value, at)
SELECT n.name, 0, 0 FROM (SELECT 'attempts' AS name) n
WHERE n.name NOT IN (SELECT name FROM counters);
