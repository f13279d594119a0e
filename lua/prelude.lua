-- What every script begins with.
--
-- Instants and spans are integers of microseconds, and all numbers stay below
-- 2^53. The state of a key is one string. Each algorithm is one function, the
-- twin of its Go file in core/:
--
--   step(text, verb, cost, pending, period, quota, extra, limit, x, y)
--
-- text is the state, or false for a new key. verb is take, peek or refund, cost
-- its units, pending what takes before it on the same key will charge. period,
-- quota and extra are the numbers of the limit, and limit is their text, with a
-- space between them. x is, for a take or peek, how far ahead it may book, and
-- for a refund the instant of the take, or 0. y is the take's reset, or the 16
-- bytes of a lease's id.
--
-- It returns nil for a text that is no state. Otherwise
--
--   next       the new state, '' to forget one as good as new, or false to leave it
--   remaining  the units that could be taken at once
--   reset      the span until the key is as good as new
--   wait       the span until the cost fits, 0 if it does, or NEVER
--
-- A take is charged if wait is at most x.

-- ARGV[1] is 0, or the instant to use instead of the server's clock; then keys
-- are kept an hour longer, as their time to live passes in real time.
local now, keep = tonumber(ARGV[1]), 3600000
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  keep = 0
end

-- NEVER is also the most that digits in a state may mean: min(digits, NEVER).
local NEVER = 9007199254740991
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local match, format, sub = string.match, string.format, string.sub

-- struct.pack(PAIR, a, b, text) puts two integers in front of a text, HEAD bytes
-- long, and struct.unpack('>dd', text) returns them. That takes less time than to
-- print and to read digits, which it comes down to where struct is missing.
local struct = rawget(_G, 'struct') or {
  pack = function(_, a, b, text)
    return format('%016d%016d%s', a, b, text)
  end,
  unpack = function(_, text)
    return tonumber(match(sub(text, 1, 16), '^%d+$') or -1), tonumber(match(sub(text, 17, 32), '^%d+$') or -1)
  end,
}
local PAIR = '>ddc0'
local HEAD = #struct.pack(PAIR, 0, 0, '')
