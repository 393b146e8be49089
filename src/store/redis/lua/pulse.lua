-- SPDX-License-Identifier: MIT
-- pulse.lua - renews the leases of names. A record of mode shared that has
-- vanished is made again with the epoch of the hold. The record is described in
-- claim.lua.
--
-- KEYS  p:{H} of each name, p:{H}:e of the last
-- ARGV  lease (ms), channel, runner; token, epoch, mode of each name
-- gives of each name one behind the other: status (1 owned, 3 settled, 5 lost,
--       6 asked to stop), epoch, takeovers
local lease, me = ARGV[1], ARGV[2]
local DAY = 86400000
local FOREVER = 9007199254740992

local call, format = redis.call, string.format
--@ clock
local ends = format('%.0f', now + lease * 1000)
local keep = format('%.0f', lease + DAY)

local function revive(rec, token, epoch)
    local highest = KEYS[#KEYS]
    if tonumber(epoch) > tonumber(call('GET', highest) or 0) then
        local all = string.find(highest, '{-', 1, true)
        call('SET', highest, epoch, 'PX', all and DAY or DAY / 144)
    end
    call('DEL', rec, rec .. ':c')
    call('HSET', rec, 's', 'R', 'm', '0', 'e', epoch, 'f', epoch, 'a', '0',
        't', format('%.0f', now), 'd', ends, 'l', '', 'r', ARGV[3],
        'o', token, 'L', lease, 'i', me)
    call('PEXPIRE', rec, keep)
end

local out = {}
for i = 1, #KEYS - 1 do
    local rec, token, epoch = KEYS[i], ARGV[3 * i + 1], ARGV[3 * i + 2]
    local row = call('HMGET', rec, 's', 'o', 'e', 'd', 'a', 'x', 'm', 'g')
    local f = {nil, row[7], nil, nil, nil, nil, row[4], [13] = row[8]}
    --@ promote
    if owns then
        f = {'R', f[14], f[3], f[7], '0', f[16], f[2]}
    else
        f = row
    end
    local runs, over = f[1] == 'R', tonumber(f[4] or 0)
    local once = f[7] == '2'
    local status, number, takeovers = 1, f[3], f[5]
    if not f[1] or (not (runs and once) and
        over + (runs and DAY * 1000 or 0) <= now) then -- view NONE
        number, takeovers = '0', '0'
        if ARGV[3 * i + 3] ~= '0' or tonumber(epoch) > now + DAY * 1000 then
            status = 5
        else
            revive(rec, token, epoch)
            number = epoch
        end
    elseif not runs and fresh and fresh[5] ~= 'F' and
        string.sub(fresh[7], 1, 16) == token then
        fresh[3], fresh[4], fresh[6] = ends, lease, me
        call('HSET', rec, 'g', table.concat(fresh, ' '))
        if over < FOREVER then
            call('PEXPIRE', rec, format('%.0f',
                (math.max(over, ends + DAY * 1000) - now) / 1000))
        end
        status, number, takeovers = fresh[5] == 'X' and 6 or 1, fresh[1], '0'
    elseif not runs then
        status = 3
    elseif f[2] ~= token then
        status = 5
    else
        call('HSET', rec, 'd', ends, 'L', lease, 'i', me)
        if not once then
            call('PEXPIRE', rec, keep)
        end
        status = f[6] and 6 or 1
    end
    out[3 * i - 2], out[3 * i - 1], out[3 * i] = status, number, takeovers
end
return out
