-- What every script begins with: the instant of the step, and small arithmetic.
--
-- Instants and spans are integers of microseconds, all numbers stay below 2^53.
-- A state is one string. Each algorithm is a table of the same functions as its
-- twin in core/:
--   load(text, l)         the state in text, or a new one if text is false; nil if unreadable
--   settle(s, l)          brings s to now and under l; true if it then means something else
--   delay(s, l, n, lease) how long until n units fit
--   take(s, l, n, lease)  charges n units
--   refund(s, l, op)      gives back op.cost units
--   gauge(s, l)           units that could be taken at once, span until as good as new
--   dump(s)               the text of a state that is not as good as new
-- A limit l has period, quota and extra; an algorithm's field capacity names the
-- one that a cost must not exceed.

-- ARGV[1] is 0, or the instant to use instead of the server's clock; then keys
-- are kept an hour longer, as their time to live passes in real time.
local now, keep = tonumber(ARGV[1]), 3600000
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  keep = 0
end

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- number reads digits; more than fit are as many as fit.
local function number(digits)
  return min(tonumber(digits), 9007199254740991)
end
