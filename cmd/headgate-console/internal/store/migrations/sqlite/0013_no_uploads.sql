-- The text of an import comes again with its confirmation.
DROP TABLE IF EXISTS uploads;
