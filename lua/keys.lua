-- How keys are left behind.

-- No unreadable value stays in the way for longer than these milliseconds.
local QUARANTINE = 60000

-- quarantine leaves what cannot be a state to expire: it may be somebody else's.
-- An error other than that of a value of another type, such as a permission that
-- is missing, ends the script.
local function quarantine(key)
  local text = redis.pcall('GET', key)
  if not string.find(text.err or 'WRONGTYPE', 'WRONGTYPE', 1, true) then
    redis.call('GET', key)
  end
  -- A time to live of -1, which is none, becomes the longest.
  local left = redis.call('PTTL', key) % 2 ^ 52
  redis.call('PEXPIRE', key, format('%d', max(1, min(left, QUARANTINE))))
end

-- save writes next. A key that was not changed but has lost its time to live
-- gets it back.
local function save(key, text, next, reset)
  if next == '' then
    redis.call('DEL', key)
    return
  end
  if not next and text and redis.call('PTTL', key) == -1 then
    next = text
  end
  if next then
    write(key, next, reset)
  end
end
