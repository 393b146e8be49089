-- SPDX-License-Identifier: MIT
-- pulse.lua - staying the owner of names. A record that vanished is made again
-- with a larger epoch. The record is described in claim.lua.
--
-- KEYS  p:{H} of each name, p:{H}:e of the last
-- ARGV  lease (ms), channel, runner; token, epoch of each name
-- gives of each name one behind the other: says (1 own, 3 settled, 5 lost, 6
--       asked to stop), epoch, takeovers
local lease, me = ARGV[1], ARGV[2]
local DAY = 86400000

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function digits(n)
    return string.format('%.0f', n)
end
local time, ends = digits(now), digits(now + lease * 1000)
local keep = lease + DAY

-- Another has not taken it over: it is still its owner's.
local highest = KEYS[#KEYS]
local function revive(rec, token, epoch, old)
    local number = digits(math.max(now, epoch + 1, tonumber(old or 0) + 1,
        tonumber(call('GET', highest) or 0) + 1))
    local all = string.find(highest, '{-', 1, true)
    call('SET', highest, number, 'PX', all and DAY or DAY / 144)
    call('DEL', rec)
    call('HSET', rec, 's', 'R', 'o', token, 'e', number, 'd', ends, 'u', time,
        'L', lease, 'i', me, 'a', '0', 'm', '0', 't', time, 'l', '',
        'r', ARGV[3])
    call('PEXPIRE', rec, keep)
    return 1, number, '0'
end

local function pulse(rec, token, epoch)
    local f = call('HMGET', rec, 's', 'o', 'e', 'd', 'a', 'x')
    if not f[1] or (f[1] ~= 'R' and tonumber(f[4] or 0) <= now) then
        if tonumber(epoch) > now + DAY * 1000 then
            return 5, '0', '0'
        end
        return revive(rec, token, epoch, f[3])
    end
    if f[1] ~= 'R' or f[2] ~= token then
        return f[1] == 'R' and 5 or 3, f[3], f[5]
    end
    call('HSET', rec, 'd', ends, 'u', time, 'L', lease, 'i', me)
    call('PEXPIRE', rec, keep)
    return f[6] and 6 or 1, f[3], f[5]
end

local out = {}
for i = 1, #KEYS - 1 do
    out[3 * i - 2], out[3 * i - 1], out[3 * i] =
        pulse(KEYS[i], ARGV[2 * i + 2], ARGV[2 * i + 3])
end
return out
