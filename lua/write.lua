-- The span that was last written, and its digits: new keys live equally long.
local latest, digits = 0, '0'

-- write puts a state into its key, until it is as good as new.
local function write(key, text, reset)
  local span = ceil(reset / 1000) + keep
  if span ~= latest then
    latest, digits = span, format('%d', span)
  end
  redis.call('SET', key, text, 'PX', digits)
end
