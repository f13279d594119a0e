-- Four kinds of conditions are left. Those of other kinds go, and a webhook with none left is turned
-- off. The condition of instances that are behind is about those that refuse policies.
UPDATE webhooks SET conditions = (
  SELECT json_group_array(json(REPLACE(c.value, '"kind":"behind"', '"kind":"policies"'))) FROM json_each(conditions) c
  WHERE json_extract(c.value, '$.kind') IN ('refused', 'bypassed', 'behind', 'policies', 'redis'));

UPDATE webhooks SET enabled = 0 WHERE conditions = '[]';

-- The condition of refusals, which is the first one, counts them instead of the requests: at_least
-- requests of which more than a share was refused had at least so many refusals.
UPDATE webhooks SET conditions = json_remove(json_set(conditions, '$[0].count',
  COALESCE(json_extract(conditions, '$[0].over'), 0) * json_extract(conditions, '$[0].at_least') / 100 + 1),
  '$[0].at_least')
WHERE json_extract(conditions, '$[0].at_least') IS NOT NULL;

UPDATE alerts SET kind = 'policies' WHERE kind = 'behind';

UPDATE deliveries SET kind = 'policies' WHERE kind = 'behind';

-- The end of such an alert was never told. Those of the other kinds end with a message.
DELETE FROM alerts WHERE kind = 'near';

DROP TABLE IF EXISTS alert_fleets;
