-- The driver of a step of one operation.
--
-- ARGV: the instant, the verb (take, soft, peek, refund or reset), the cost, the
-- three numbers of the limit, and, where they are not 0, x and y. Reply: the
-- instant, allowed, remaining, wait, retry, reset; retry is -1 for never, and
-- allowed is -1 for a key that cannot be read.
local key, verb, x, y = KEYS[1], ARGV[2], tonumber(ARGV[7] or 0), ARGV[8] or 0
local text = redis.pcall('GET', key)
local next, remaining, reset, wait
if type(text) ~= 'table' then
  if verb == 'reset' then
    next, remaining, reset = step(false, 'peek', 0, 0, ARGV[4], ARGV[5], ARGV[6], 0, '')
    next, wait, x = '', 0, 0
  else
    local does = verb == 'soft' and 'take' or verb
    next, remaining, reset, wait = step(text, does, tonumber(ARGV[3]), 0, ARGV[4], ARGV[5], ARGV[6], x, y)
  end
end
if next == nil then
  quarantine(key)
  return { now, -1, 0, 0, 0, 0 }
end
save(key, text, next, reset)
if verb == 'refund' then
  return { now, 1, remaining, 0, 0, reset }
elseif wait > x then
  return { now, 0, remaining, 0, wait == NEVER and -1 or wait, reset }
elseif verb == 'peek' then
  wait = 0
end
return { now, 1, remaining, wait, 0, reset }
