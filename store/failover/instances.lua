-- Counts the instances that are alive, and says by how many one of them may divide limits.
-- KEYS[1]  sorted set: instance id, scored by the instant at which it expires
-- KEYS[2]  sorted set: instance id, scored by minus the least number by which it may be dividing
-- ARGV[1]  id of the instance
-- ARGV[2]  milliseconds for which it counts as alive, or 0 if it leaves
-- ARGV[3]  the number by which it divides now; UNKNOWN stands for one unit of each key
-- ARGV[4]  the least number by which it wants to divide
-- Reply    the number of instances alive, and the number by which this one may divide
local UNKNOWN, SOME = 1048576, 64
local id, ttl, used = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local gone = redis.call('ZREVRANGEBYSCORE', KEYS[1], string.format('%d', now), '-inf')
if ttl == 0 then
  gone[#gone + 1] = id
end
for _, member in ipairs(gone) do
  redis.call('ZREM', KEYS[1], member)
  redis.call('ZREM', KEYS[2], member)
end
if ttl == 0 then
  return {redis.call('ZCARD', KEYS[1]), UNKNOWN}
end

local new = redis.call('ZADD', KEYS[1], string.format('%d', now + ttl), id) == 1
local live = redis.call('ZCARD', KEYS[1])
local number = math.min(math.max(live, tonumber(ARGV[4])), UNKNOWN)

if redis.call('ZCARD', KEYS[2]) > live then
  -- Versions that do not know KEYS[2] forget members of KEYS[1] alone.
  local alive = {}
  for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '-inf')) do
    alive[member] = true
  end
  for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[2], '+inf', '-inf')) do
    if not alive[member] then
      redis.call('ZREM', KEYS[2], member)
    end
  end
end

if new or number < used then
  -- A part that is new, or larger, is taken from what the others leave. Of a large fleet
  -- the largest parts are added up, and each other counts as the least of these.
  local parts = redis.call('ZREVRANGEBYSCORE', KEYS[2], '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, SOME + 1)
  local taken, part, others = 0, 0, live - 1
  for i = 1, #parts, 2 do
    if parts[i] ~= id then
      local by = -tonumber(parts[i + 1])
      part = by < UNKNOWN and 1 / by or 0
      taken, others = taken + part, others - 1
    end
  end
  if #parts > 2 * SOME then
    taken = taken + others * part
  end

  local left = 1 - taken
  if left * UNKNOWN <= 1 then
    number = UNKNOWN
  else
    number = math.max(number, math.ceil(1 / left * (1 - 1e-9))) -- the sum is rounded
  end
  if not new then
    number = math.min(number, used)
  end
end

-- If the reply is lost, the instance goes on with the part that it has.
redis.call('ZADD', KEYS[2], string.format('%d', -math.min(number, used)), id)
redis.call('PEXPIRE', KEYS[1], string.format('%d', ttl))
redis.call('PEXPIRE', KEYS[2], string.format('%d', ttl))
return {live, number}
