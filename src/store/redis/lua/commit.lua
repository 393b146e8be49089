-- SPDX-License-Identifier: MIT
-- commit.lua - how work ends: with a result, a failure, or given back. The
-- record is described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w, p:{H}:g, p:{H}:c
-- ARGV  token, epoch, outcome (D, E or A), flags (1 strict, 2 put, 4 resolve),
--       ttl (ms; 0: for who waits; -1: no end), cost (ms), label, runner, the
--       most bytes of a value in a message, how long a hidden result is kept
--       besides the lease (ms), H, value
-- gives says; of 3 settled and 5 lost the whole record. 255: no such epoch
--
-- S H STATE MODE EPOCH TAKEOVERS LEFT COST HIDDEN LABEL RUNNER\n are a message
-- to all who waited: numbers (LEFT in us, -1: no end), then sizes of what
-- follows behind one another; the value is the rest.
--
-- Somebody waits while this runs, so what most commits do comes first and
-- straight; functions are made by those that need them. A hidden result stays
-- in the record, and the list of who waited where it is: who asks next moves
-- them away, see gifts.lua.
local rec, waits, gifts = KEYS[1], KEYS[2], KEYS[3]
local token, epoch, outcome = ARGV[1], ARGV[2], ARGV[3]
local value = ARGV[12]
local DAY = 86400000
local FOREVER = '9007199254740992'
local SENT_MAX = 4194304

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
if tonumber(epoch) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'e', 'o', 'm', 'a', 'l', 'r', 'k', 'L', 'n')
local state = f[1]
local runs = state == 'R'
local flags = tonumber(ARGV[4])
local effect = runs and f[2] == epoch and f[3] == token and flags < 2

-- What is not the end of the asker's own work.
local says = 1
local hidden = false
if not effect then
    local strict, put, resolve = flags % 2 == 1, flags % 4 >= 2, flags >= 4
    local row = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l',
        'r', 'h')
    local ends = tonumber(row[7] or 0)
    if state and not runs and ends <= now then
        call('DEL', rec, waits)
        state = false
    end
    hidden = row[11] and state and not runs
    if hidden and row[11] == '2' then
--@ gifts
    end
    local newer = state and tonumber(epoch) > tonumber(f[2] or 0)

    local function absent()
        if strict or resolve then
            return 0
        end
        return 1, true
    end

    -- What is answered, and does it take effect now?
    local function judge()
        if not state then
            return absent()
        end
        if runs then
            local same = resolve and f[2] == epoch and f[4] == '2' and
                ends <= now
            return same and 1 or 5, same
        end
        if f[2] == epoch and f[3] == token then -- it did, once before
            return 1
        end
        if hidden and (put or newer) then
            return absent()
        end
        if put and newer then
            return 1, true
        end
        return 3
    end

    says, effect = judge()
    local standing = ''
    if says == 3 and hidden then
        standing = call('HGET', gifts, 'v' .. f[2])
        if not standing then -- nobody was to see it, but it stands
            says = 5
        end
    elseif says == 3 and state ~= 'G' then
        standing = call('HGET', rec, 'v') or ''
    end
    row[11] = nil
    if says == 3 then
        return {3, now, 0, row, standing}
    elseif says == 5 then
        return {5, now, runs and call('HLEN', waits) or 0, row}
    end
end
if not effect or (outcome == 'A' and not runs) then
    return {says, now}
end

local waiting = call('HGETALL', waits)
local message = 'A' .. ARGV[11]
local listed -- until then (ms) the list of who waited is kept
if outcome == 'A' then
    call('DEL', rec, KEYS[4])
else
    local ttl, ms = ARGV[5], tonumber(ARGV[5])
    local gone = ms == 0
    if gone then
        ms = ARGV[10] + (runs and f[9] or 0)
        ttl = string.format('%.0f', ms)
    end
    local time = clock[1] .. string.sub('00000' .. clock[2], -6)
    local over = ms < 0 and FOREVER or string.format('%.0f', now + ms * 1000)
    local mode, takeovers, label, runner = '0', '0', ARGV[7], ARGV[8]
    if runs then
        mode, takeovers = f[4] or mode, f[5] or takeovers
        runner = f[7] or runner
        label = label == '' and f[6] or label
    end

    -- What ran keeps its row but for what has changed; what else is in its
    -- record has no meaning any more.
    if not runs then
        if hidden and tonumber(call('HGET', gifts, 'n' .. f[2]) or 0) <= 0 then
            call('HDEL', gifts, 'm' .. f[2], 'v' .. f[2], 'n' .. f[2])
        end
        if state then
            call('DEL', rec)
        end
        call('HSET', rec, 'm', mode, 'e', epoch, 'a', takeovers, 'r', runner)
        if f[8] then
            call('HSET', rec, 'k', 1)
        end
    end
    local kept = waiting[1] or f[8] -- for an owner that was lost, and is late
    if not gone then
        call('HSET', rec, 's', outcome, 't', time, 'u', time, 'd', over,
            'c', ARGV[6], 'l', label, 'o', token, 'v', value)
    elseif kept then
        call('HSET', rec, 's', outcome, 't', time, 'u', time, 'd', over,
            'c', ARGV[6], 'l', label, 'o', token, 'h', '2', 'v', value)
    else
        call('HSET', rec, 's', outcome, 't', time, 'u', time, 'd', over,
            'c', ARGV[6], 'l', label, 'o', token, 'h', '1')
    end
    if f[10] then
        call('DEL', KEYS[4])
    end
    if ms >= 0 then
        call('PEXPIRE', rec, ttl)
    elseif runs then
        call('PERSIST', rec)
    end
    if gone and waiting[1] then -- a list that outlived it would be the next's
        listed = string.sub(over, 1, -4) - 1
    end

    if waiting[1] and #value <= tonumber(ARGV[9]) and
        #value * #waiting / 2 <= SENT_MAX then
        message = 'S' .. ARGV[11] .. ' ' .. outcome .. ' ' .. mode .. ' ' ..
            epoch .. ' ' .. takeovers .. ' ' ..
            (ms < 0 and '-1' or ttl .. '000') .. ' ' .. ARGV[6] ..
            (gone and ' 1 ' or ' 0 ') .. #label .. ' ' .. #runner .. '\n' ..
            label .. runner .. value
    end
end
if waiting[1] then
    for i = 1, #waiting, 2 do
        call('PUBLISH', waiting[i], message)
    end
    if listed then
        call('PEXPIREAT', waits, listed)
    else
        call('DEL', waits)
    end
end
return {1, now}
