-- SPDX-License-Identifier: MIT
-- write.lua - one more chunk for those who follow. It has a number, so that a
-- repeat is known and none is left out. The record is described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c
-- ARGV  token, epoch, number (0 is the first), writer, its bytes, the most
--       bytes of all, H, chunk
-- gives 1 it is there, 5 lost, 253 too large, 254 and how many there are: it
--       is not the next
local rec, waits, chunks = KEYS[1], KEYS[2], KEYS[3]
local number, me = tonumber(ARGV[3]), ARGV[4]
local DAY = 86400000
local call = redis.call

local f = call('HMGET', rec, 's', 'e', 'o', 'n', 'b', 'q', 'L')
if f[1] ~= 'R' or f[2] ~= ARGV[2] or f[3] ~= ARGV[1] then
    return {5}
end
local there, bytes = tonumber(f[4] or 0), tonumber(f[5] or 0)
if number < there and f[6] == me then -- once more
    return {1}
end
bytes = bytes + ARGV[5]
if bytes > tonumber(ARGV[6]) then
    return {253}
end
if number ~= there then
    return {254, there}
end
if there == 0 then
    call('DEL', chunks)
end
call('RPUSH', chunks, ARGV[8])
call('PEXPIRE', chunks, (f[7] or 0) + DAY)
call('HSET', rec, 'n', there + 1, 'b', bytes, 'q', me)
for _, channel in ipairs(call('HKEYS', waits)) do
    call('PUBLISH', channel, 'C' .. ARGV[7])
end
return {1}
