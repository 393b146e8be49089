-- SPDX-License-Identifier: MIT
-- forget.lua - a result goes, or a name in doubt. The record is described in
-- claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c
-- ARGV  epoch (0: whichever), H
-- gives the record (2 wait, 3 settled, 4 doubt), or 0: it is gone
local rec, waits = KEYS[1], KEYS[2]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l', 'r',
    'h')
local over = tonumber(f[7] or 0) <= now
local runs = f[1] == 'R'
local doubt = runs and over and f[2] == '2'
if not f[1] or (over and not doubt) or (f[11] and not runs) then
    return {0, now}
end
if runs and not doubt then
    return {2, now, call('HLEN', waits), {unpack(f, 1, 10)}}
end
if ARGV[1] ~= '0' and ARGV[1] ~= f[3] then
    local waiting = runs and call('HLEN', waits) or 0
    return {doubt and 4 or 3, now, waiting, {unpack(f, 1, 10)}}
end
call('DEL', rec, KEYS[3])
for _, channel in ipairs(call('HKEYS', waits)) do
    call('PUBLISH', channel, 'A' .. ARGV[2])
end
call('DEL', waits)
return {0, now}
