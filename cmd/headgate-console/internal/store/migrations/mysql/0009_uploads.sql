-- The text of an import whose plan a user was shown, until the user confirms it: the last one of
-- each user.
CREATE TABLE IF NOT EXISTS uploads (
  user_name VARCHAR(64) NOT NULL PRIMARY KEY,
  digest CHAR(64) NOT NULL,
  at BIGINT NOT NULL,
  data MEDIUMBLOB NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
