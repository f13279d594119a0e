-- The changes of a user that wait are counted before another one is scheduled.
CREATE INDEX scheduled_by_user ON scheduled (user_name, state);
