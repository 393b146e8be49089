-- SPDX-License-Identifier: MIT
-- pulse.lua - staying the owner of names. A record that vanished is made again
-- with the epoch of its owner. The record is described in claim.lua.
--
-- KEYS  p:{H} of each name, p:{H}:e of the last
-- ARGV  lease (ms), channel, runner; token, epoch of each name
-- gives of each name one behind the other: says (1 own, 3 settled, 5 lost, 6
--       asked to stop), epoch, takeovers
local lease, me = ARGV[1], ARGV[2]
local DAY = 86400000
local FULL = '9007199254740992'

local call, format = redis.call, string.format
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local time = clock[1] .. string.sub('00000' .. clock[2], -6)
local ends = format('%.0f', now + lease * 1000)
local keep = format('%.0f', lease + DAY)

-- Another has not taken it over: it is still its owner's. The first chunks are
-- gone: there shall be no more.
local function revive(rec, token, epoch)
    local highest = KEYS[#KEYS]
    if tonumber(epoch) > tonumber(call('GET', highest) or 0) then
        local all = string.find(highest, '{-', 1, true)
        call('SET', highest, epoch, 'PX', all and DAY or DAY / 144)
    end
    call('DEL', rec)
    call('HSET', rec, 's', 'R', 'o', token, 'e', epoch, 'd', ends, 'u', time,
        'L', lease, 'i', me, 'a', '0', 'm', '0', 't', time, 'l', '',
        'r', ARGV[3], 'b', FULL)
    call('PEXPIRE', rec, keep)
    return epoch
end

local out = {}
for i = 1, #KEYS - 1 do
    local rec, token, epoch = KEYS[i], ARGV[2 * i + 2], ARGV[2 * i + 3]
    local f = call('HMGET', rec, 's', 'o', 'e', 'd', 'a', 'x')
    local says, number, takeovers = 1, f[3], f[5]
    if f[1] == 'R' and f[2] == token then
        call('HSET', rec, 'd', ends, 'u', time, 'L', lease, 'i', me)
        call('PEXPIRE', rec, keep)
        says = f[6] and 6 or 1
    elseif f[1] == 'R' then
        says = 5
    elseif f[1] and tonumber(f[4] or 0) > now then
        says = 3
    elseif tonumber(epoch) > now + DAY * 1000 then
        says, number, takeovers = 5, '0', '0'
    else
        number, takeovers = revive(rec, token, epoch), '0'
    end
    out[3 * i - 2], out[3 * i - 1], out[3 * i] = says, number, takeovers
end
return out
