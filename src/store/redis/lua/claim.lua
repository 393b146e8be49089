-- SPDX-License-Identifier: MIT
-- claim.lua - whose work it is: the asker's, another's, or done already.
--
-- The keys of a name, in one slot; H is its printable form:
--   p:{H}    hash  the record
--       s  state: R runs, D done, E failed, G given up (failed, without value)
--       m  mode (enum vow_mode)      e  epoch          a  takeovers
--       t  since (us)                u  last pulse     d  end of lease, result
--       c  cost (ms)                 l  label          r  runner
--       o  token of the owner, or of who settled it    i  owner's channel
--       L  lease (ms)                x  1: asked to stop
--       k  1: an owner that was lost may still come with a result
--       h  hidden, a result of ttl 0: gone for all but who waited. 2: as it was
--          made, with its value, and p:{H}:w has who waited. 1: nobody did, or
--          gifts.lua has moved it
--       n  chunks written            b  their bytes    q  who wrote last
--       v  value of a result, if h is not 1
--   p:{H}:w  hash  channel -> token: who waits for what runs; if h is 2, who
--            waited, and then it ends before the record does
--   p:{H}:g  hash  hidden results that were moved, each E an epoch:
--       mE row of the record   vE value   nE how many of these are left:
--       cCHANNEL -> token, 0 or 1 (has been read), E: who may read it
--   p:{H}:c  list  chunks; counts while it is as long as n says
--   p:{H}:e  the highest epoch there was, for clocks that are set back; without
--            a cluster one for all names, p:{---}:e with as many of these
-- Times are us of the server. An end of 2^53 is none. Every key ends: a record
-- that runs a day after its lease, a result with its time.
--
-- A record is told as: says, now, who waits, its row, value. The row is
-- s m e a t u d c l r of the hash.
--
-- Messages, H as above:
--   S H then numbers, see commit.lua: it is settled    A H: ask again
--   C H: there are chunks    X H: the owner is asked to stop
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:g, p:{H}:c, p:{H}:e
-- ARGV  token, channel, lease (ms), takeovers that are allowed, flags (1 do not
--       wait, 2 force), floor, mode, label, runner, epoch of the hidden result
--       that the channel was told of, H
-- gives the record (1 own, 2 wait, 3 settled, 4 doubt); 255: no such floor
--
-- It goes straight, for functions would be made anew by each call.
local rec, waits, gifts, chunks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local highest = KEYS[5]
local token, me = ARGV[1], ARGV[2]
local flags = tonumber(ARGV[5])
local nowait, force = flags % 2 == 1, flags >= 2
local DAY = 86400000
local GAVE_UP = 60000
local WAITS_MAX = 4096

local call, format = redis.call, string.format
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
if tonumber(ARGV[6]) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l', 'r',
    'o', 'h', 'k', 'L')
local state, ends = f[1], tonumber(f[7] or 0)
local mine = f[11] == token
local hidden = f[12] and state ~= 'R'
if hidden and ends <= now then
    call('DEL', waits)
elseif hidden and f[12] == '2' then
    local row = f
--@ gifts
end
local waiting, gift = 0, false
if call('EXISTS', waits, gifts) > 0 then
    waiting = call('HLEN', waits)
    gift = call('HGET', gifts, 'c' .. me)
end

-- A hidden result that this channel waited for, and has not read; or has, by
-- the same token.
local given = gift and string.sub(gift, 18)
if gift and not force and (string.sub(gift, 1, 16) == token or
    (string.sub(gift, 17, 17) ~= '1' and given ~= ARGV[10])) then
    local held = call('HMGET', gifts, 'm' .. given, 'v' .. given)
    local row = held[1] and held[2] and cmsgpack.unpack(held[1])
    if row and tonumber(row[7]) > now then
        call('HSET', gifts, 'c' .. me, token .. '1' .. given)
        return {3, now, 0, row, held[2]}
    end
end

-- What is to be done.
local says, owns, late, takeovers = 1, false, f[13], '0'
if not state or (state ~= 'R' and
    (ends <= now or not mine and (force or hidden))) then
    owns = true
elseif state ~= 'R' then
    says = 3
elseif mine then
    says = 1
elseif ends > now then
    says = 2
elseif f[2] == '2' then
    says = 4
elseif ends + GAVE_UP * 1000 <= now then -- lost long ago: it counts no more
    owns, late = true, true
elseif force or tonumber(f[4] or 0) < tonumber(ARGV[4]) then
    owns, late, takeovers = true, true, (f[4] or 0) + 1
else -- too many owners were lost: that is its result, and nobody's
    says, f[1] = 3, 'G'
end
local gives_up = f[1] == 'G' and state == 'R'

local time = clock[1] .. string.sub('00000' .. clock[2], -6)
if says == 2 and f[14] and ends > now + f[14] * 1000 then
    -- Its last pulse is yet to come: the clock was set back. Nobody else shall
    -- wait longer for that than a lease from now on.
    ends = now + f[14] * 1000
    f[6], f[7] = time, format('%.0f', ends)
    call('HSET', rec, 'u', time, 'd', f[7])
end
if says == 1 then
    local over = format('%.0f', now + ARGV[3] * 1000)
    if owns then
        local epoch = format('%.0f', math.max(now, (f[3] or 0) + 1,
            ARGV[6] + 1, (call('GET', highest) or 0) + 1))
        local all = string.find(highest, '{-', 1, true)
        call('SET', highest, epoch, 'PX', all and DAY or DAY / 144)
        if state then
            call('DEL', rec, chunks)
        end
        if hidden and tonumber(call('HGET', gifts, 'n' .. f[3]) or 0) <= 0 then
            call('HDEL', gifts, 'm' .. f[3], 'v' .. f[3], 'n' .. f[3])
        end
        hidden = false
        f = {'R', ARGV[7], epoch, takeovers, time, time, over, '0', ARGV[8],
            ARGV[9]}
        call('HSET', rec, 's', 'R', 'o', token, 'e', epoch, 'd', over,
            'u', time, 'L', ARGV[3], 'i', me, 'a', takeovers, 'm', ARGV[7],
            't', time, 'l', ARGV[8], 'r', ARGV[9])
        if late then
            call('HSET', rec, 'k', 1)
        end
    else
        f[6], f[7] = time, over
        call('HSET', rec, 'u', time, 'd', over, 'L', ARGV[3], 'i', me)
    end
    call('PEXPIRE', rec, ARGV[3] + DAY)
elseif gives_up then
    f[5], f[6], f[7] = time, time, format('%.0f', now + GAVE_UP * 1000)
    call('DEL', chunks)
    call('HDEL', rec, 'o', 'i', 'x', 'n', 'b', 'q')
    call('HSET', rec, 's', 'G', 't', time, 'u', time, 'd', f[7])
    call('PEXPIRE', rec, GAVE_UP)
end

local value = ''
if says == 3 and hidden then
    value = call('HGET', gifts, 'v' .. f[3])
elseif says == 3 and f[1] ~= 'G' then
    value = call('HGET', rec, 'v') or ''
end
if says ~= 2 and waiting > 0 then
    waiting = waiting - call('HDEL', waits, me)
elseif says == 2 and not nowait and waiting < WAITS_MAX then
    waiting = waiting + call('HSET', waits, me, token)
    call('PEXPIRE', waits, format('%.0f', (ends - now) / 1000 + DAY))
end
if gift and (says ~= 2 or not nowait) then
    call('HDEL', gifts, 'c' .. me)
    local left = call('HINCRBY', gifts, 'n' .. given, -1)
    if left <= 0 and not (hidden and f[3] == given) then
        call('HDEL', gifts, 'm' .. given, 'v' .. given, 'n' .. given)
    end
end
if gives_up then
    for _, channel in ipairs(call('HKEYS', waits)) do
        call('PUBLISH', channel, 'A' .. ARGV[11])
    end
    call('DEL', waits)
end
if not value then -- its own result, which nobody wanted: it will be gone
    says = 2
end
f[11], f[12], f[13], f[14] = nil, nil, nil, nil
return {says, now, f[1] == 'R' and waiting or 0, f, value}
