-- SPDX-License-Identifier: MIT
-- read.lua - some chunks of what runs. The record is described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:c
-- ARGV  epoch, number of the first, how many at most
-- gives 1 and the chunks; 0: it is over
local f = redis.call('HMGET', KEYS[1], 's', 'e', 'n')
local there, from = tonumber(f[3] or 0), tonumber(ARGV[2])
if f[1] ~= 'R' or f[2] ~= ARGV[1] then
    return {0}
end
if from >= there then
    return {1}
end
if redis.call('LLEN', KEYS[2]) ~= there then
    return {0}
end
local list = redis.call('LRANGE', KEYS[2], ARGV[2],
    string.format('%.0f', from + ARGV[3] - 1))
table.insert(list, 1, 1)
return list
