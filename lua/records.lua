-- Lists of records in one string. A record begins with an instant in 7 bytes, most
-- significant first, and the list is in the order of the instants.

-- @slow

local function pack(instant)
  return string.char(floor(instant / 2 ^ 48) % 256, floor(instant / 2 ^ 40) % 256, floor(instant / 2 ^ 32) % 256,
    floor(instant / 2 ^ 24) % 256, floor(instant / 2 ^ 16) % 256, floor(instant / 2 ^ 8) % 256, instant % 256)
end

-- instant returns the instant of record i, from 1, in a list of records of width bytes.
local function instant(list, width, i)
  local a, b, c, d, e, f, g = string.byte(list, (i - 1) * width + 1, (i - 1) * width + 7)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

-- upto returns the number of records whose instants are at most latest.
local function upto(list, width, latest)
  local n, total = 0, #list / width
  for power = 13, 0, -1 do
    local try = n + 2 ^ power
    if try <= total and instant(list, width, try) <= latest then
      n = try
    end
  end
  return n
end
