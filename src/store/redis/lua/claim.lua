-- SPDX-License-Identifier: MIT
-- claim.lua - claims a name: the rules of src/store/rules for one record.
--
-- The keys of a name, in one slot; H is the printable form of the name:
--   p:{H}    hash  the record
--       s  state: R runs, D done, E failed, G given up (failed, without value)
--       m  mode (enum vow_mode)      e  epoch          f  first epoch
--       a  takeovers                 t  since (us)     d  end of lease or result
--       c  cost (ms)                 l  label          r  runner
--       o  token of the owner, or of the runner that settled
--       L  lease (ms)                i  channel of the owner
--       h  1: settled with a time to live of 0 (spent); without value
--       v  value of a result
--       g  the refresher of a result, see refresher.lua. A version without
--          refreshers drops this field with the record
--       x  1: the owner was asked to stop; of state R only, as are
--       n  number of chunks, and     b  their bytes
--   p:{H}:w  hash  channel of each registered instance -> 1
--   p:{H}:c  list  chunks; valid while as long as n says
--   p:{H}:v:FIRST  hash  the result left for the claims that waited for the
--            run FIRST: fields of the record and the value
--   p:{H}:e  the highest epoch granted, for clocks that are set back; without
--            a cluster one for all names, p:{---}:e with as many of these
-- Times are microseconds of the server. An end of 2^53 is none. Fields that
-- are missing: f is e (a record of version 0.1). All keys expire by
-- themselves, but a running record of mode once: a lapsed lease is kept for a
-- day.
--
-- A result beside a refresher is kept as long as the refresher would be, were
-- it the owner; the other fields say when the result expires.
--
-- A record is told as: status, now, registered instances, row, value. The row
-- is s m e f a t d c l r L of the hash.
--
-- Messages, H as above:
--   S H then numbers, see commit.lua: settled    A H: claim again
--   C H: there are chunks    X H: the owner is asked to stop
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c, p:{H}:v:WAITED if the caller waited for a
--       run, p:{H}:e
-- ARGV  token, channel, lease (ms), takeovers that are allowed, flags (1 do not
--       wait, 2 force), floor, mode, label, runner, H, epoch of the result to
--       refresh (0: none)
-- gives the record (1 owned, 2 waiting, 3 settled, 4 doubt), the value only if
--       no refresh was asked for; 255: the floor is refused
--
-- No functions: they would be made anew by each call.
local rec, waits, chunks, highest = KEYS[1], KEYS[2], KEYS[3], KEYS[#KEYS]
local token, me, lease = ARGV[1], ARGV[2], ARGV[3]
local flags = tonumber(ARGV[5])
local nowait, force = flags % 2 == 1, flags >= 2
local DAY = 86400000
local MINUTE = 60000
local FOREVER = 9007199254740992
local WAITS_MAX = 4096

local call, format = redis.call, string.format
--@ clock
if tonumber(ARGV[6]) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'm', 'e', 'f', 'a', 't', 'd', 'c', 'l', 'r',
    'L', 'h', 'g', 'o')
--@ promote
local state, ends, mine = f[1], tonumber(f[7] or 0), f[14] == token
local runs, once = state == 'R', f[2] == '2'
if state and not (runs and once) and
    ends + (runs and DAY * 1000 or 0) <= now then -- view NONE
    state, runs, mine, fresh = false, false, false, nil
end
local lapsed = runs and ends <= now

-- A result was left for this caller.
if KEYS[5] and not mine and not force then
    local left = call('HMGET', KEYS[4], 's', 'm', 'e', 'f', 'a', 't', 'd', 'c',
        'l', 'r', 'L', 'v')
    if left[1] and tonumber(left[7]) > now then
        local value = left[12]
        left[12] = nil
        call('HDEL', waits, me)
        return {3, now, 0, left, value}
    end
end

-- The decision. `first`: the run that a takeover continues. `refreshes`: the
-- caller is or becomes the refresher. `works`: a refresher has a lease.
local status, grants, takeovers, first = 1, false, 0, nil
local refreshes = false
local works = fresh and fresh[5] ~= 'F' and tonumber(fresh[3]) > now
if ARGV[11] ~= '0' and state and not runs and not mine and not f[12] then
    local free = not fresh or tonumber(fresh[3]) <= now
    refreshes = not once and ARGV[7] ~= '2'
    if refreshes and fresh and fresh[5] ~= 'F' and
        string.sub(fresh[7], 1, 16) == token then
        grants = false
    elseif refreshes and state == 'D' and f[3] == ARGV[11] and free then
        grants = true
    else
        call('HDEL', waits, me)
        return {3, now, 0, {unpack(f, 1, 11)}}
    end
elseif works and force and not mine then
    status, ends = 2, tonumber(fresh[3])
    f = {'R', f[2], fresh[1], fresh[1], '0', fresh[2], fresh[3], '0', f[9],
        string.sub(fresh[7], 17), fresh[4]}
elseif not state or (not runs and not mine and (f[12] or force)) then
    grants = true
elseif not runs then
    status = 3
elseif not mine and not lapsed then
    status = 2
elseif not mine and once then
    status = 4
elseif not mine then
    local long_ago = ends + MINUTE * 1000 <= now
    first = f[4] or f[3] or nil
    if long_ago or force or tonumber(f[5] or 0) < tonumber(ARGV[4]) then
        grants, takeovers = true, long_ago and 0 or (f[5] or 0) + 1
    else
        status, state = 3, 'G'
    end
end

local value = ''
if status == 1 then
    local over = format('%.0f', now + lease * 1000)
    local epoch
    if grants then
        epoch = format('%.0f', math.max(now, (f[3] or 0) + 1,
            (fresh and fresh[1] or 0) + 1, ARGV[6] + 1,
            (call('GET', highest) or 0) + 1))
        local all = string.find(highest, '{-', 1, true)
        call('SET', highest, epoch, 'PX', all and DAY or DAY / 144)
    end
    if refreshes then
        if grants then
            fresh = {epoch, format('%.0f', now), over, lease, 'R', me,
                token .. ARGV[9]}
        else
            fresh[3], fresh[4], fresh[6] = over, lease, me
        end
        call('HSET', rec, 'g', table.concat(fresh, ' '))
        if ends < FOREVER then
            call('PEXPIRE', rec, format('%.0f',
                (math.max(ends, over + DAY * 1000) - now) / 1000))
        end
        f = {'R', f[2], fresh[1], fresh[1], '0', fresh[2], over, '0', f[9],
            string.sub(fresh[7], 17), lease}
        once = true -- the key has its time
    elseif grants then
        if f[1] then
            call('DEL', rec, chunks)
        end
        once = ARGV[7] == '2'
        f = {'R', ARGV[7], epoch, first or epoch, takeovers,
            format('%.0f', now), over, '0', ARGV[8], ARGV[9], lease}
        call('HSET', rec, 's', 'R', 'm', ARGV[7], 'e', epoch, 'f', f[4],
            'a', takeovers, 't', f[6], 'd', over, 'l', ARGV[8], 'r', ARGV[9],
            'o', token, 'L', lease, 'i', me)
    else
        f[7], f[11] = over, lease
        call('HSET', rec, 'd', over, 'L', lease, 'i', me)
    end
    if not once then
        call('PEXPIRE', rec, lease + DAY)
    end
elseif state == 'G' and runs then
    f[1], f[6] = 'G', format('%.0f', now)
    f[7] = format('%.0f', now + MINUTE * 1000)
    call('DEL', chunks)
    call('HDEL', rec, 'o')
    call('HSET', rec, 's', 'G', 't', f[6], 'd', f[7])
    call('PEXPIRE', rec, MINUTE)
elseif status == 3 and f[1] ~= 'G' and not f[12] then
    value = call('HGET', rec, 'v') or ''
end

if status == 2 and runs and f[11] and ends > now + f[11] * 1000 then
    -- The clock was set back: waiters wait at most one more lease.
    ends = now + f[11] * 1000
    f[7] = format('%.0f', ends)
    call('HSET', rec, 'd', f[7])
end
local waiting = call('HLEN', waits)
if status ~= 2 and waiting > 0 then
    waiting = waiting - call('HDEL', waits, me)
elseif status == 2 and not nowait and waiting < WAITS_MAX then
    waiting = waiting + call('HSET', waits, me, 1)
    call('PEXPIRE', waits, format('%.0f', (ends - now) / 1000 + DAY))
end
if status == 3 and runs and waiting > 0 then -- given up
    for _, channel in ipairs(call('HKEYS', waits)) do
        call('PUBLISH', channel, 'A' .. ARGV[10])
    end
    call('DEL', waits)
end
return {status, now, f[1] == 'R' and waiting or 0, {unpack(f, 1, 11)}, value}
