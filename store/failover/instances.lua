-- Counts the instances that are alive, after one has reported that it is alive
-- or that it leaves.
-- KEYS[1]  sorted set: instance id, scored by the instant at which it expires
-- ARGV[1]  id of the instance
-- ARGV[2]  milliseconds for which it counts as alive, or 0 if it leaves
-- Reply    the number of instances alive
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now))
if ttl > 0 then
  redis.call('ZADD', KEYS[1], string.format('%d', now + ttl), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], string.format('%d', ttl))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return redis.call('ZCARD', KEYS[1])
