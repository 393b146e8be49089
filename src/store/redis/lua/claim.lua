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
--       h  1: hidden, a result of ttl 0: gone for all but who waited
--       n  chunks written            b  their bytes    q  who wrote last
--       v  value of a result that is not hidden
--   p:{H}:w  hash  channel -> token: who waits for what runs
--   p:{H}:g  hash  hidden results, each E an epoch:
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
local rec, waits, gifts, chunks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local highest = KEYS[5]
local token, me = ARGV[1], ARGV[2]
local flags = tonumber(ARGV[5])
local nowait, force = flags % 2 == 1, flags >= 2
local DAY = 86400000
local GAVE_UP = 60000
local WAITS_MAX = 4096

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
if tonumber(ARGV[6]) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l', 'r',
    'o', 'h', 'k')
local state, ends = f[1], tonumber(f[7] or 0)
local mine = f[11] == token
local hidden = f[12] and state ~= 'R'
local waiting, gift = 0, false
if call('EXISTS', waits, gifts) > 0 then
    waiting = call('HLEN', waits)
    gift = call('HGET', gifts, 'c' .. me)
end

local function digits(n)
    return string.format('%.0f', n)
end

local function drop_gift(epoch)
    call('HDEL', gifts, 'm' .. epoch, 'v' .. epoch, 'n' .. epoch)
end

-- A hidden result that this channel waited for, and has not read; or has, by
-- the same token.
local function take_gift()
    local epoch = string.sub(gift, 18)
    local read = string.sub(gift, 17, 17) == '1' or epoch == ARGV[10]
    if force or (read and string.sub(gift, 1, 16) ~= token) then
        return nil
    end
    local held = call('HMGET', gifts, 'm' .. epoch, 'v' .. epoch)
    local row = held[1] and held[2] and cmsgpack.unpack(held[1])
    if not row or tonumber(row[7]) <= now then
        return nil
    end
    call('HSET', gifts, 'c' .. me, token .. '1' .. epoch)
    return {3, now, 0, row, held[2]}
end

local function leave_gift()
    local epoch = string.sub(gift, 18)
    call('HDEL', gifts, 'c' .. me)
    local left = call('HINCRBY', gifts, 'n' .. epoch, -1)
    if left <= 0 and not (hidden and f[3] == epoch) then
        drop_gift(epoch)
    end
end

local function renew()
    f[6], f[7] = digits(now), digits(now + ARGV[3] * 1000)
    call('HSET', rec, 'u', f[6], 'd', f[7], 'L', ARGV[3], 'i', me)
    call('PEXPIRE', rec, ARGV[3] + DAY)
end

local function own(takeovers, late)
    local epoch = math.max(now, tonumber(f[3] or 0) + 1, ARGV[6] + 1,
        tonumber(call('GET', highest) or 0) + 1)
    local all = string.find(highest, '{-', 1, true)
    call('SET', highest, digits(epoch), 'PX', all and DAY or DAY / 144)
    if state then
        call('DEL', rec, chunks)
    end
    if hidden and tonumber(call('HGET', gifts, 'n' .. f[3]) or 0) <= 0 then
        drop_gift(f[3])
    end
    hidden = false
    local time = digits(now)
    f = {'R', ARGV[7], digits(epoch), takeovers, time, time,
        digits(now + ARGV[3] * 1000), '0', ARGV[8], ARGV[9]}
    call('HSET', rec, 's', 'R', 'o', token, 'e', f[3], 'd', f[7], 'u', time,
        'L', ARGV[3], 'i', me, 'a', takeovers, 'm', f[2], 't', time,
        'l', f[9], 'r', f[10])
    if late then
        call('HSET', rec, 'k', 1)
    end
    call('PEXPIRE', rec, ARGV[3] + DAY)
end

-- Too many owners were lost: that is its result, and nobody's.
local function give_up()
    f[1], f[5], f[6] = 'G', digits(now), digits(now)
    f[7] = digits(now + GAVE_UP * 1000)
    call('DEL', chunks)
    call('HDEL', rec, 'o', 'i', 'x', 'n', 'b', 'q')
    call('HSET', rec, 's', 'G', 't', f[5], 'u', f[6], 'd', f[7])
    call('PEXPIRE', rec, GAVE_UP)
end

local function decide()
    if not state or (state ~= 'R' and
        (ends <= now or not mine and (force or hidden))) then
        own(0, f[13])
        return 1
    end
    if state ~= 'R' then
        return 3
    end
    if mine then
        renew()
        return 1
    end
    if ends > now then
        return 2
    end
    if f[2] == '2' then
        return 4
    end
    if ends + GAVE_UP * 1000 <= now then -- lost long ago: it counts no more
        own(0, true)
        return 1
    end
    local takeovers = tonumber(f[4] or 0)
    if takeovers >= tonumber(ARGV[4]) then
        give_up()
        return 3
    end
    own(takeovers + 1, true)
    return 1
end

if gift then
    local answer = take_gift()
    if answer then
        return answer
    end
end
local says = decide()
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
    call('PEXPIRE', waits, digits(math.max(ends - now, 0) / 1000 + DAY))
end
if gift and (says ~= 2 or not nowait) then
    leave_gift()
end
if f[1] == 'G' and state == 'R' then
    for _, channel in ipairs(call('HKEYS', waits)) do
        call('PUBLISH', channel, 'A' .. ARGV[11])
    end
    call('DEL', waits)
end
if not value then -- its own result, which nobody wanted: it will be gone
    says = 2
end
return {says, now, f[1] == 'R' and waiting or 0, {unpack(f, 1, 10)}, value}
