-- Policies that are in shadow or off until a time. The reason is why one did not go back then.
CREATE TABLE IF NOT EXISTS pauses (
  policy VARCHAR(64) NOT NULL PRIMARY KEY,
  mode_after VARCHAR(16) NOT NULL,
  until_at BIGINT NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  via VARCHAR(96) NOT NULL,
  reason TEXT NOT NULL,
  FOREIGN KEY (user_name) REFERENCES users (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The table may be gone already, if this file is run again from its beginning.
CREATE TABLE IF NOT EXISTS scheduled (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  policy VARCHAR(64) NOT NULL,
  base BIGINT NOT NULL,
  body_before MEDIUMTEXT NOT NULL,
  body_after MEDIUMTEXT NOT NULL,
  due_at BIGINT NOT NULL,
  user_name VARCHAR(64) NOT NULL,
  via VARCHAR(96) NOT NULL,
  state VARCHAR(16) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A change that waits is one if it changes the mode alone of a policy that is in shadow or off now,
-- and was not deleted since. Of several of a policy the first one counts.
INSERT IGNORE INTO pauses (policy, mode_after, until_at, user_name, via, reason)
SELECT s.policy, COALESCE(JSON_UNQUOTE(JSON_EXTRACT(s.body_after, '$.mode')), 'enforce'), s.due_at, s.user_name, s.via, ''
FROM scheduled s JOIN policies p ON p.name = s.policy
WHERE s.state = 'waiting' AND p.mode IN ('shadow', 'off')
AND JSON_UNQUOTE(JSON_EXTRACT(s.body_before, '$.mode')) = p.mode
AND COALESCE(JSON_UNQUOTE(JSON_EXTRACT(s.body_after, '$.mode')), 'enforce') <> p.mode
AND JSON_REMOVE(s.body_before, '$.mode') = JSON_REMOVE(s.body_after, '$.mode')
AND NOT EXISTS (SELECT 1 FROM revisions r WHERE r.policy = s.policy AND r.version > s.base AND r.body_after = '')
ORDER BY s.due_at, s.id;

-- The others are dropped. The audit log keeps what they were to change, under their ids.
INSERT INTO audit (at, actor, via, action, object, outcome, body_before, body_after, request_id, address, note)
SELECT UNIX_TIMESTAMP() * 1000000, s.user_name, 'console', 'policy.unschedule',
CONCAT('policy:', s.policy), 'done', s.body_before, s.body_after, s.id, '', CONCAT('dropped with the upgrade, was scheduled for ',
DATE_FORMAT(DATE_ADD('1970-01-01', INTERVAL s.due_at DIV 1000000 SECOND), '%Y-%m-%d %H:%i'), ' UTC')
FROM scheduled s WHERE s.state = 'waiting'
AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.policy = s.policy AND p.until_at = s.due_at
AND p.mode_after = COALESCE(JSON_UNQUOTE(JSON_EXTRACT(s.body_after, '$.mode')), 'enforce')
AND JSON_REMOVE(s.body_before, '$.mode') = JSON_REMOVE(s.body_after, '$.mode'))
AND s.id NOT IN (SELECT a.request_id FROM audit a WHERE a.action = 'policy.unschedule');

DROP TABLE scheduled;

DELETE FROM counters WHERE name = 'scheduled';
