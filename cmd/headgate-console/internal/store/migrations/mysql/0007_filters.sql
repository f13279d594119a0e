-- The filters of the list of policies that users have saved, each for themselves.
CREATE TABLE IF NOT EXISTS filters (
  user_name VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  query TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (user_name, name),
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX traffic_series_by_policy ON traffic_series (policy);
