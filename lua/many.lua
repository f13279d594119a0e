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
-- step, and have short cuts; and their keys follow each other and are used here for
-- the first time.
--
-- Reply: the instant, then the decision on every operation, see answer.lua.
local WIDTH, ROW, TOGETHER = 7, 32, 100
local byte, program, value = string.byte, ARGV[2], 3
local reply, size = { now }, 1

-- What is known of the keys, by their place: the state that was read, false if there
-- is none, or '' if it cannot be read; the state now, once it may be another; and
-- the span until they are as good as new.
local olds, texts, resets = {}, {}, {}

-- What is known of the limits, by their place.
local limits = {}
for i = 1, tonumber(ARGV[3]) do
  local text = ARGV[value + 2]
  local a, b, c = match(text, '^(%d+) (%d+) (%d+)$')
  local letter = ARGV[value + 1]
  limits[i] = { letter = letter, quick = b == '1' and quicks[letter],
    text = text, period = a * 1, quota = b * 1, extra = c * 1 }
  value = value + 2
end

-- Keys are read together, which takes less time than one by one. One without a
-- state has none, or is of another type.
for first = 1, #KEYS, TOGETHER do
  local last = min(first + TOGETHER - 1, #KEYS)
  local read, strings = redis.call('MGET', unpack(KEYS, first, last)), 0
  for k = first, last do
    olds[k] = read[k - first + 1]
    if olds[k] then
      strings = strings + 1
    end
  end
  if strings ~= last - first + 1 and redis.call('EXISTS', unpack(KEYS, first, last)) ~= strings then
    for k = first, last do
      local key = KEYS[k]
      if not olds[k] and type(redis.pcall('GET', key)) == 'table' then
        olds[k] = ''
      end
    end
  end
end
