-- SPDX-License-Identifier: MIT
-- commit.lua - ends work: with a result, a failure, or abandoned. The record is
-- described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:c; p:{H}:v:FIRST is made from these, because the
--       owner's record has FIRST
-- ARGV  token, epoch, outcome (D, E or A), flags (1 strict, 2 put, 4 resolve),
--       ttl (ms; 0: for waiters; -1: no end), cost (ms), label, runner, the
--       most bytes of a value in a message, how long a spent result is kept
--       besides the lease (ms), the same if an owner was replaced, H, value
-- gives the status; with 3 settled and 5 lost the whole record. 255: the epoch
--       is refused
--
-- S H STATE MODE EPOCH TAKEOVERS LEFT COST SPENT LABEL RUNNER\n are a message
-- to all registered instances: numbers (LEFT in us, -1: no end; SPENT is 1 for
-- a ttl of 0), then sizes of label and runner, which follow; the value is the
-- rest.
local rec, waits = KEYS[1], KEYS[2]
local token, epoch, outcome = ARGV[1], ARGV[2], ARGV[3]
local value = ARGV[13]
local DAY = 86400000
local FOREVER = '9007199254740992'
local MINUTE = 60000 -- a key must not go before the result in it
local PAUSE = 1000000
local SENT_MAX = 4194304

local call, format = redis.call, string.format
--@ clock
if tonumber(epoch) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'm', 'e', 'f', 'a', 't', 'd', 'c', 'l', 'r',
    'L', 'h', 'g', 'o', 'n')
local chunks = f[15]
--@ promote
local state, ends = f[1], tonumber(f[7] or 0)
local runs, once, spent = state == 'R', f[2] == '2', f[12]
if state and not (runs and once) and
    ends + (runs and DAY * 1000 or 0) <= now then -- view NONE
    state, runs, fresh = false, false, nil
end
local same = state and f[3] == epoch and f[14] == token
local flags = tonumber(ARGV[4])
local strict, put, resolve = flags % 2 == 1, flags % 4 >= 2, flags >= 4

-- The decision; `settles`: the step takes effect. A refresh that has failed can
-- only fail again.
local refreshes = fresh and fresh[1] == epoch and
    string.sub(fresh[7], 1, 16) == token and
    (fresh[5] ~= 'F' or outcome ~= 'D')
local status, settles = 1, false
if runs and resolve then
    settles = once and ends <= now and f[3] == epoch
    status = settles and 1 or 5
elseif runs then
    settles = same and not put
    status = settles and 1 or 5
elseif state and same then -- the step came twice
    status = 1
elseif resolve then
    status = not state and 0 or spent and 5 or 3
elseif refreshes and outcome == 'D' then
    settles = true
elseif refreshes then -- the result stays
    if fresh[5] ~= 'F' then
        fresh[5], fresh[3] = 'F', format('%.0f', outcome == 'E' and now + PAUSE
            or now)
        call('HSET', rec, 'g', table.concat(fresh, ' '))
        if ends < tonumber(FOREVER) then
            call('PEXPIRE', rec, format('%.0f', (ends - now) / 1000 + MINUTE))
        end
    end
elseif not state or ((put or spent) and tonumber(epoch) > tonumber(f[3] or 0)) or
    (put and spent) then
    settles = outcome ~= 'A' and not strict
    status = (settles or outcome == 'A') and 1 or 0
else
    status = spent and 5 or 3
end
if status == 3 then
    local standing = state ~= 'G' and call('HGET', rec, 'v') or ''
    return {3, now, 0, {unpack(f, 1, 11)}, standing}
elseif status == 5 then
    return {5, now, runs and call('HLEN', waits) or 0, {unpack(f, 1, 11)}}
elseif not settles then
    return {status, now}
end

local waiting = call('HKEYS', waits)
local message = 'A' .. ARGV[12]
if chunks then
    call('DEL', KEYS[3])
end
if outcome == 'A' then
    call('DEL', rec)
else
    local ttl, ms = ARGV[5], tonumber(ARGV[5])
    local leaves = ms == 0
    if leaves then
        ms = runs and f[4] ~= epoch and ARGV[11] or ARGV[10]
        ms = ms + (runs and f[11] or refreshes and fresh[4] or 0)
        ttl = format('%.0f', ms)
    end
    local since = format('%.0f', now)
    local over = ms < 0 and FOREVER or format('%.0f', now + ms * 1000)
    local mode, takeovers, first, lease = '0', '0', epoch, '0'
    local label, runner = ARGV[7], ARGV[8]
    if runs then
        mode, takeovers = f[2] or mode, f[5] or takeovers
        first, lease = f[4] or epoch, f[11] or lease
        runner = f[10] or runner
        label = label == '' and f[9] or label
    else
        if refreshes then
            mode, lease = f[2] or mode, fresh[4]
        end
        call('DEL', rec)
        call('HSET', rec, 'm', mode, 'e', epoch, 'f', first, 'a', takeovers,
            'r', runner, 'L', lease)
    end
    if not leaves then
        call('HSET', rec, 's', outcome, 't', since, 'd', over, 'c', ARGV[6],
            'l', label, 'o', token, 'v', value)
    else
        call('HSET', rec, 's', outcome, 't', since, 'd', over, 'c', ARGV[6],
            'l', label, 'o', token, 'h', '1')
    end
    if leaves and (waiting[1] or first ~= epoch) then
        local left = rec .. ':v:' .. first
        call('HSET', left, 's', outcome, 'm', mode, 'e', epoch, 'f', first,
            'a', takeovers, 't', since, 'd', over, 'c', ARGV[6], 'l', label,
            'r', runner, 'L', lease, 'v', value)
        call('PEXPIRE', left, ttl)
    end
    if ms >= 0 then
        call('PEXPIRE', rec, ttl)
    elseif runs then
        call('PERSIST', rec)
    end
    if waiting[1] and #value <= tonumber(ARGV[9]) and
        #value * #waiting <= SENT_MAX then
        message = 'S' .. ARGV[12] .. ' ' .. outcome .. ' ' .. mode .. ' ' ..
            epoch .. ' ' .. takeovers .. ' ' ..
            (ms < 0 and '-1' or ttl .. '000') .. ' ' .. ARGV[6] ..
            (leaves and ' 1 ' or ' 0 ') .. #label .. ' ' .. #runner .. '\n' ..
            label .. runner .. value
    end
end
if waiting[1] then
    for _, channel in ipairs(waiting) do
        call('PUBLISH', channel, message)
    end
    call('DEL', waits)
end
return {1, now}
