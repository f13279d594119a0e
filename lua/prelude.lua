-- The beginning of every script, and the contract of its parts.
--
-- A script consists of the prelude, key.lua, the algorithms that it needs, reply.lua, void.lua,
-- ban.lua and credit.lua if there are bans or credits, and a driver: single.lua for one operation,
-- batch.lua for many. records.lua precedes the algorithms if one of them keeps a list or there are
-- bans or credits. lua.go
-- first joins the parts above the `-- @slow` line of each file, then the parts below. Most
-- calls return before the second part and so do not pay for its definitions.
--
-- A line `local NAME = 7` or `local NAME = 'text'` defines a constant: lua.go puts
-- the value where the name stands, because a function reads a literal faster than a
-- local of the script. Four constants are defined in lua.go: FORMAT is the number of the
-- latest format of states. BANS is true in a script with ban.lua. BAN is the ban there and FIRST the
-- place of the verb, in single.lua.
--
-- The parts below that line run at every slower call. A function that is defined there takes
-- as long as ten or twenty lines, and one within an algorithm longer, for each local that
-- it uses.
--
-- Instants and spans are integers of microseconds, and all numbers stay below
-- 2^53. The state of a key is one string, and a key without a state is fresh. Each
-- algorithm is one function, the twin of its Go file in core/. (The states there have no
-- format, as they do not outlast their process.)
--
--   step(text, verb, cost, pending, period, quota, extra, limit, x, y)
--
--   text     the state, or false for a fresh key
--   verb     take, peek, refund or debit
--   cost     the units of the operation
--   pending  what earlier takes of the same step will charge to the key
--   period, quota, extra
--            the numbers of the limit
--   limit    their text, with a space between them
--   x        for a take or a peek, how far ahead it may book; for a refund, the
--            instant of the take, or 0 if that is not known; for a debit, the most
--            units that may be in use after it
--   y        for a refund, the reset that the take was answered; for a lease, the
--            16 bytes of its id; for a take, peek or debit of a calendar, the boundaries
--            of its windows in a text, with a space between them
--
-- It returns nil if text is no state. Otherwise it returns
--
--   next       the new state, '' to delete a key that is fresh, or false to leave it. A
--              peek and a refused take leave it, unless the clock has stepped back
--   remaining  the units that could be taken at once
--   reset      the span until the key is fresh
--   wait       the span until the cost fits, 0 if it does, or NEVER
--   taken      for a debit, the units that it charged
--
-- The states that these files describe are of format 1, and those with credits of format 2; see
-- credit.lua. None of the first begins with the byte LATER. A state of a later format begins with that byte and the number of its format in
-- another. The drivers leave such a state as it is, whatever the verb, and answer what
-- reply.lua says.
--
-- A take is charged if wait is at most x. voids in void.lua adds the verb reset to the contract,
-- and under bans guard in ban.lua and lend in credit.lua add more.
--
-- The phases of a step carry the names of the Go methods: settle brings the state up
-- to now, delay computes the wait, take, refund and debit change the state, and gauge
-- reports what is left.

-- NEVER is the wait for a cost that never fits. It is also the largest number that
-- digits in a state may mean: min(digits, NEVER).
local NEVER = 9007199254740991

-- MAX_PERIOD is the longest time in which a bucket may fill. A state whose limit takes
-- longer was not written by these scripts, and is read as one of the operation's limit.
local MAX_PERIOD = 34560000000000

-- HOUR is in milliseconds, as the times to live of keys are.
local HOUR = 3600000

-- ARGV[1] is 0, or the instant to use instead of the server's clock. Keys are then kept
-- an hour longer, because their time to live passes in real time.
local now, keep = tonumber(ARGV[1]), HOUR
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  keep = 0
end

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local match, format, sub = string.match, string.format, string.sub

-- struct.pack(PAIR_TEXT, a, b, text) puts two integers in front of a text, in HEAD
-- bytes, and struct.unpack(PAIR, text) returns the integers. Packing takes less time
-- than printing and reading digits. Where struct is missing, digits are used.
local PAIR = '>dd'
local PAIR_TEXT = '>ddc0'
local struct = rawget(_G, 'struct') or {
  pack = function(_, a, b, text)
    return format('%016d%016d%s', a, b, text)
  end,
  unpack = function(_, text)
    return tonumber(match(sub(text, 1, 16), '^%d+$') or -1), tonumber(match(sub(text, 17, 32), '^%d+$') or -1)
  end,
}
local HEAD = #struct.pack(PAIR_TEXT, 0, 0, '')
