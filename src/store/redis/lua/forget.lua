-- SPDX-License-Identifier: MIT
-- forget.lua - deletes a result, or a name in doubt. The record is described in
-- claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c
-- ARGV  epoch (0: any), H
-- gives the record (2 waiting, 3 settled, 4 doubt), or 0: the record, or the
--       result beside a refresher, is gone
local rec, waits = KEYS[1], KEYS[2]
local DAY = 86400000
local call = redis.call
--@ clock
local f = call('HMGET', rec, 's', 'm', 'e', 'f', 'a', 't', 'd', 'c', 'l', 'r',
    'L', 'h', 'g', 'o', 'i')
--@ promote
--@ view
local any = ARGV[1] == '0'
local works = status == 3 and fresh and fresh[5] ~= 'F' and
    tonumber(fresh[3]) > now
if status == 0 or
    (status == 2 and not any and tonumber(ARGV[1]) < tonumber(f[3] or 0)) then
    return {0, now}
elseif status == 2 or (not any and ARGV[1] ~= f[3]) or (any and works) then
    local waiting = runs and call('HLEN', waits) or 0
    return {works and any and 2 or status, now, waiting, {unpack(f, 1, 11)}}
elseif works then
    f[7] = '0'
    --@ promote
    call('PEXPIRE', rec, string.format('%.0f', (f[7] - now) / 1000 + DAY))
    return {0, now}
end
call('DEL', rec, KEYS[3])
for _, channel in ipairs(call('HKEYS', waits)) do
    call('PUBLISH', channel, 'A' .. ARGV[2])
end
call('DEL', waits)
return {0, now}
