-- How decisions stand in a reply.

-- answer puts a decision behind the first n integers of a reply: the remaining
-- units, then four times the reset plus a code, which is 0 if the operation is
-- allowed, 1 if it is after a wait, 2 if it is refused, and 3 if it is for ever. The
-- wait follows 1, and the span until a retry 2. All that is said of an unreadable
-- key is -1. It returns how many integers there are then, and the code.
local function answer(reply, n, verb, remaining, reset, wait, x)
  if not remaining then
    reply[n + 1] = -1
    return n + 1, 3
  end
  local code = 0
  if wait == NEVER then
    code = 3
  elseif wait > x then
    code = 2
  elseif wait ~= 0 and verb == 'take' then
    code = 1
  end
  reply[n + 1], reply[n + 2] = remaining, reset * 4 + code
  if code % 3 == 0 then
    return n + 2, code
  end
  reply[n + 3] = wait
  return n + 3, code
end
