-- Writing and deleting keys.

-- latest is the time to live that was written last, and digits is its text. New keys often
-- have equal ones, so the text is made once for many.
local latest, digits = 0, '0'

-- write puts a state into its key, which expires when it is fresh.
local function write(key, text, reset)
  local ttl = ceil(reset / 1000) + keep
  if ttl ~= latest then
    latest, digits = ttl, format('%d', ttl)
  end
  redis.call('SET', key, text, 'PX', digits)
end

-- @slow

-- LATER is the first byte of a state of a later format. No text in UTF-8 has it, and no number
-- of a state that is packed begins with it, because none is negative.
local LATER = 254

-- QUARANTINE is how many milliseconds an unreadable value may stay.
local QUARANTINE = 60000

-- NEEDS_BANS is in the error of a script without ban.lua that meets a key with strikes.
local NEEDS_BANS = 'HGBANS'

-- quarantine makes an unreadable value expire instead of deleting it, because it may
-- belong to another program. An error other than that of a value of another type, such
-- as a missing permission, ends the script.
local function quarantine(key)
  local text = redis.pcall('GET', key)
  if not BANS and type(text) == 'string' and sub(text, 1, 1) == STRUCK then
    error(NEEDS_BANS) -- nothing is written yet
  end
  if not string.find(text.err or 'WRONGTYPE', 'WRONGTYPE', 1, true) then
    redis.call('GET', key)
  end
  -- A time to live of -1, which means none, becomes the longest.
  local left = redis.call('PTTL', key) % 2 ^ 52
  redis.call('PEXPIRE', key, format('%d', max(1, min(left, QUARANTINE))))
end

-- save writes next, or deletes the key. A key that was not changed but has lost its
-- time to live gets it back. The reset of such a key is 0 if it is fresh under the limit
-- of the operation.
local function save(key, text, next, reset)
  if next == '' then
    redis.call('DEL', key)
    return
  end
  if not next and text and redis.call('PTTL', key) == -1 then
    next = text
  end
  if next then
    write(key, next, max(reset, 1))
  end
end
