-- SPDX-License-Identifier: MIT
-- cancel.lua - asks the owner to stop. The record is described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w
-- ARGV  H
-- gives the record (2 waiting: the owner was asked, 3 settled, 4 doubt), or 0:
--       none
local call = redis.call
--@ clock
local f = call('HMGET', KEYS[1], 's', 'm', 'e', 'f', 'a', 't', 'd', 'c', 'l',
    'r', 'L', 'h', 'i')
--@ view
if status == 0 then
    return {0, now}
elseif status == 2 then
    call('HSET', KEYS[1], 'x', 1)
    if f[13] then
        call('PUBLISH', f[13], 'X' .. ARGV[1])
    end
end
return {status, now, runs and call('HLEN', KEYS[2]) or 0, {unpack(f, 1, 11)}}
