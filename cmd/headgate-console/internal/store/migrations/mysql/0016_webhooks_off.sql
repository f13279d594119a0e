-- A webhook that is off has no alerts, and no message of it waits. The version before turned some
-- off and left both.
UPDATE deliveries SET state = 'failed', error = 'the webhook was turned off before',
  tried_at = UNIX_TIMESTAMP() * 1000000
WHERE state = 'waiting' AND webhook IN (SELECT id FROM webhooks WHERE enabled = 0);

DELETE FROM alerts WHERE webhook IN (SELECT id FROM webhooks WHERE enabled = 0);
