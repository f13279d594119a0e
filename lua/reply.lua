-- The form of a decision in a reply: the remaining units, four times the reset plus
-- a code, and after BOOKED the wait, after REFUSED the span until a retry. For a take
-- of as many units as fit, and for a debit, the number of its units follows. The decision
-- on an unreadable key is -1 alone, and of a banned key BANNED units remain. The decision on
-- a state of a later format is OF_FORMAT less the number of the format, alone. That on a key with
-- credit begins with OF_CREDIT, the units of credit that are left, those that were taken, and the
-- end of the first of these.

-- @slow

local ALLOWED = 0
local BOOKED = 1 -- allowed after a wait
local REFUSED = 2
local IMPOSSIBLE = 3 -- the cost never fits
local BANNED = -2
local OF_CREDIT = -3
local OF_FORMAT = -100

-- answer appends a decision to the first n integers of a reply. It returns the new
-- number of integers and the code. Where nothing could be decided, remaining is nil, and
-- reset what stands for the decision, or nil if the key is unreadable. x is how far ahead a take or
-- a peek may book, and loan what lend in credit.lua says of the key, or nil.
local function answer(reply, n, verb, remaining, reset, wait, x, loan)
  if not remaining then
    reply[n + 1] = reset or -1
    return n + 1, IMPOSSIBLE
  end
  if loan then
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = OF_CREDIT, loan[1], loan[2], loan[3]
    n = n + 4
    x = loan.refused and 0 or x
  end
  local code = ALLOWED
  if wait == NEVER then
    code = IMPOSSIBLE
  elseif wait > x or wait ~= 0 and remaining == BANNED then
    code = REFUSED
  elseif wait ~= 0 and verb == 'take' then
    code = BOOKED
  end
  reply[n + 1], reply[n + 2] = remaining, reset * 4 + code
  if code == ALLOWED or code == IMPOSSIBLE then
    return n + 2, code
  end
  reply[n + 3] = wait
  return n + 3, code
end
