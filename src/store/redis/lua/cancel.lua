-- SPDX-License-Identifier: MIT
-- cancel.lua - asks the owner or the refresher to stop. The record is described
-- in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w
-- ARGV  H
-- gives the record (2 waiting: the owner was asked, 3 settled, 4 doubt), or 0:
--       none
local rec, call = KEYS[1], redis.call
--@ clock
local f = call('HMGET', rec, 's', 'm', 'e', 'f', 'a', 't', 'd', 'c', 'l', 'r',
    'L', 'h', 'g', 'o', 'i')
--@ promote
--@ view
if status == 0 then
    return {0, now}
elseif status == 2 then
    call('HSET', rec, 'x', 1)
    if f[15] then
        call('PUBLISH', f[15], 'X' .. ARGV[1])
    end
elseif status == 3 and fresh and fresh[5] ~= 'F' and
    tonumber(fresh[3]) > now then
    fresh[5] = 'X'
    call('HSET', rec, 'g', table.concat(fresh, ' '))
    call('PUBLISH', fresh[6], 'X' .. ARGV[1])
    return {2, now, call('HLEN', KEYS[2]), {'R', f[2], fresh[1], fresh[1], '0',
        fresh[2], fresh[3], '0', f[9], string.sub(fresh[7], 17), fresh[4]}}
end
return {status, now, runs and call('HLEN', KEYS[2]) or 0, {unpack(f, 1, 11)}}
