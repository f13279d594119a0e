-- The driver of many steps, carried out one after the other, each all or nothing.
--
-- ARGV: the instant; the program; the number of limits and, for each, the letter
-- of its algorithm and its text; and the values that operations bring. An
-- operation is seven bytes of the program: what it does, and the places of its
-- key and its limit, in three bytes each. What it does is 0 to take, 1 to take
-- softly, 2 to peek, 3 to refund and 4 to reset, plus 8 if the next operation is of
-- the same step, plus 16 if it brings its cost, x and y: they are 1, 0 and 0
-- otherwise.
--
-- In front of steps that are all alike there may be a row: seven bytes of which the
-- first is 32, three are the number of the steps, and three that of the operations
-- of each. All of them are 0, or 8, to take 1; their limits are those of the first
-- step; and their keys follow each other and are used here for the first time.
--
-- Reply: the instant, then the decision on every operation, see answer.lua.
local at = 1
repeat
  if byte(program, at) == ROW then
    at = row(at)
  else
    at = settle(at)
  end
until at == #program + 1
for k = 1, #KEYS do
  local text = known(k)
  if text == olds[k] then
    save(KEYS[k], text, false, resets[k])
  else
    save(KEYS[k], olds[k], text or '', resets[k])
  end
end
return reply
