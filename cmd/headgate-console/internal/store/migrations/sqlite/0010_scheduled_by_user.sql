-- The changes of a user that wait are counted before another one is scheduled.
CREATE INDEX IF NOT EXISTS scheduled_by_user ON scheduled (user_name, state);
