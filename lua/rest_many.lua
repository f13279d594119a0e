-- What is left of the driver of many steps.
while at ~= #program + 1 do
  at = settle(at)
  if left ~= 0 then
    left, before = left - 1, before + width
  end
  at = shortly(at)
end
for k = 1, #KEYS do
  local text = known(k)
  if text == olds[k] then
    save(KEYS[k], text, false, resets[k])
  else
    save(KEYS[k], olds[k], text or '', resets[k])
  end
end
return reply
