-- How often the rows of an application in traffic were changed. A reader that finds the
-- version that it knows need not read the rows again.
CREATE TABLE IF NOT EXISTS traffic_versions (
  app TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
