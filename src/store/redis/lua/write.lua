-- SPDX-License-Identifier: MIT
-- write.lua - adds a chunk for followers. The number is the owner's: a number
-- that is there already is a repeat, and a number beyond the next is not
-- stored. The record is described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c
-- ARGV  token, epoch, number (0 is the first), its bytes, the most bytes of
--       all, H, chunk
-- gives 1 owned, 5 lost, 253 too large
local rec, waits, chunks = KEYS[1], KEYS[2], KEYS[3]
local DAY = 86400000
local call = redis.call
--@ clock
local row = call('HMGET', rec, 's', 'e', 'o', 'n', 'b', 'L', 'd', 'm', 'g')
local f = {nil, row[8], nil, nil, nil, nil, row[7], [13] = row[9]}
--@ promote
if owns then
    f = {'R', f[3], f[14], false, false, f[11], f[7], f[2]}
else
    f = row
end
if fresh and fresh[5] ~= 'F' and fresh[1] == ARGV[2] and
    string.sub(fresh[7], 1, 16) == ARGV[1] then
    return {1, now} -- no follower can read the chunk
end
if f[1] ~= 'R' or f[2] ~= ARGV[2] or f[3] ~= ARGV[1] or
    (f[8] ~= '2' and (f[7] or 0) + DAY * 1000 <= now) then
    return {5, now}
end
local there, bytes = tonumber(f[4] or 0), (f[5] or 0) + ARGV[4]
if tonumber(ARGV[3]) ~= there then
    return {1, now}
elseif bytes > tonumber(ARGV[5]) then
    return {253, now}
end
if there == 0 then
    call('DEL', chunks)
end
call('RPUSH', chunks, ARGV[7])
call('PEXPIRE', chunks, (f[6] or 0) + DAY)
call('HSET', rec, 'n', there + 1, 'b', bytes)
for _, channel in ipairs(call('HKEYS', waits)) do
    call('PUBLISH', channel, 'C' .. ARGV[6])
end
return {1, now}
