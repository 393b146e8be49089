-- SPDX-License-Identifier: MIT
-- cancel.lua - the owner is asked to stop. The record is described in
-- claim.lua.
--
-- KEYS  p:{H}, p:{H}:w
-- ARGV  H
-- gives the record (2 wait: it was asked, 3 settled, 4 doubt), or 0: none
local rec, waits = KEYS[1], KEYS[2]
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l', 'r',
    'h', 'i')
local over = tonumber(f[7] or 0) <= now
local runs = f[1] == 'R'
local doubt = runs and over and f[2] == '2'
if not f[1] or (over and not doubt) or (f[11] and not runs) then
    return {0, now}
end
local row = {unpack(f, 1, 10)}
if not runs then
    return {3, now, 0, row}
end
local waiting = call('HLEN', waits)
if doubt then
    return {4, now, waiting, row}
end
call('HSET', rec, 'x', 1)
if f[12] then
    call('PUBLISH', f[12], 'X' .. ARGV[1])
end
return {2, now, waiting, row}
