-- How often the rows of an application in traffic were changed. A reader that finds the
-- version that it knows need not read the rows again.
CREATE TABLE IF NOT EXISTS traffic_versions (
  app VARCHAR(64) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
