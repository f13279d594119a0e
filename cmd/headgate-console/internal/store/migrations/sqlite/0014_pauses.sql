-- Policies that are in shadow or off until a time. The reason is why one did not go back then.
CREATE TABLE IF NOT EXISTS pauses (
  policy TEXT NOT NULL PRIMARY KEY,
  mode_after TEXT NOT NULL,
  until_at INTEGER NOT NULL,
  user_name TEXT NOT NULL REFERENCES users (name),
  via TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A change that waits is one if it changes the mode alone of a policy that is in shadow or off now,
-- and was not deleted since. Of several of a policy the first one counts.
INSERT OR IGNORE INTO pauses (policy, mode_after, until_at, user_name, via, reason)
SELECT s.policy, COALESCE(JSON_EXTRACT(s.body_after, '$.mode'), 'enforce'), s.due_at, s.user_name, s.via, ''
FROM scheduled s JOIN policies p ON p.name = s.policy
WHERE s.state = 'waiting' AND p.mode IN ('shadow', 'off')
AND JSON_EXTRACT(s.body_before, '$.mode') = p.mode
AND COALESCE(JSON_EXTRACT(s.body_after, '$.mode'), 'enforce') <> p.mode
AND JSON_REMOVE(s.body_before, '$.mode') = JSON_REMOVE(s.body_after, '$.mode')
AND NOT EXISTS (SELECT 1 FROM revisions r WHERE r.policy = s.policy AND r.version > s.base AND r.body_after = '')
ORDER BY s.due_at, s.id;

-- The others are dropped. The audit log keeps what they were to change, under their ids.
INSERT INTO audit (at, actor, via, action, object, outcome, body_before, body_after, request_id, address, note)
SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000, s.user_name, 'console', 'policy.unschedule',
'policy:' || s.policy, 'done', s.body_before, s.body_after, s.id, '', 'dropped with the upgrade, was scheduled for '
|| strftime('%Y-%m-%d %H:%M', s.due_at / 1000000, 'unixepoch') || ' UTC'
FROM scheduled s WHERE s.state = 'waiting'
AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.policy = s.policy AND p.until_at = s.due_at
AND p.mode_after = COALESCE(JSON_EXTRACT(s.body_after, '$.mode'), 'enforce')
AND JSON_REMOVE(s.body_before, '$.mode') = JSON_REMOVE(s.body_after, '$.mode'));

DROP TABLE scheduled;

DELETE FROM counters WHERE name = 'scheduled';
