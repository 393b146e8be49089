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
local rec, waits, gifts, chunks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, epoch, outcome = ARGV[1], ARGV[2], ARGV[3]
local flags = tonumber(ARGV[4])
local strict, put, resolve = flags % 2 == 1, flags % 4 >= 2, flags >= 4
local value = ARGV[12]
local DAY = 86400000
local FOREVER = 9007199254740992
local GIFTS_MAX = 64
local READERS_MAX = 8192
local SENT_MAX = 4194304

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
if tonumber(epoch) > now + DAY * 1000 then
    return {255, now}
end

local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l', 'r',
    'o', 'h', 'k', 'L')
local state, ends = f[1], tonumber(f[7] or 0)
if state and state ~= 'R' and ends <= now then
    call('DEL', rec)
    state = false
end
local runs = state == 'R'
local hidden = f[12] and state and not runs
local newer = state and tonumber(epoch) > tonumber(f[3] or 0)

local function digits(n)
    return string.format('%.0f', n)
end

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
    local same = f[3] == epoch and f[11] == token
    if runs and resolve then
        same = f[3] == epoch and f[2] == '2' and ends <= now
    end
    if runs then
        same = same and (resolve or not put)
        return same and 1 or 5, same
    end
    if same then -- it did, and this is the second time
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

local function drop_gift(number)
    call('HDEL', gifts, 'm' .. number, 'v' .. number, 'n' .. number)
end

-- Whose time is over goes, and of too many the oldest; all, if there are too
-- many who could read them.
local function tidy_gifts()
    local left, readers = {}, {}
    for _, field in ipairs(call('HKEYS', gifts)) do
        local kind, number = string.sub(field, 1, 1), string.sub(field, 2)
        local row = kind == 'm' and cmsgpack.unpack(call('HGET', gifts, field))
        if row and tonumber(row[7]) > now then
            table.insert(left, tonumber(number))
        elseif row then
            drop_gift(number)
        elseif kind == 'c' then
            table.insert(readers, field)
        end
    end
    if #readers > READERS_MAX then
        call('DEL', gifts)
        return
    end
    table.sort(left)
    for i = 1, #left - GIFTS_MAX + 1 do
        drop_gift(digits(left[i]))
    end
    for _, field in ipairs(readers) do
        local number = string.sub(call('HGET', gifts, field), 18)
        if call('HEXISTS', gifts, 'm' .. number) == 0 then
            call('HDEL', gifts, field)
        end
    end
end

-- A result for these who wait, and for an owner that was lost and comes late.
local function give(row, waiting, life)
    tidy_gifts()
    call('HSET', gifts, 'm' .. epoch, cmsgpack.pack(row), 'v' .. epoch, value,
        'n' .. epoch, #waiting / 2)
    for i = 1, #waiting, 2 do
        call('HSET', gifts, 'c' .. waiting[i], waiting[i + 1] .. '0' .. epoch)
    end
    call('PEXPIRE', gifts, math.max(life, call('PTTL', gifts)))
end

local function tell(waiting, message)
    for i = 1, #waiting, 2 do
        call('PUBLISH', waiting[i], message)
    end
    call('DEL', waits)
end

local function settle()
    local ttl = tonumber(ARGV[5])
    local gone = ttl == 0
    if gone then
        ttl = ARGV[10] + (runs and tonumber(f[14] or 0) or 0)
    end
    local over = ttl < 0 and FOREVER or now + ttl * 1000
    local label = ARGV[7]
    if runs and label == '' then
        label = f[9] or ''
    end
    local row = {outcome, runs and f[2] or '0', epoch, runs and f[4] or '0',
        digits(now), digits(now), digits(over), ARGV[6], label,
        runs and f[10] or ARGV[8]}
    local waiting = call('HGETALL', waits)
    if hidden and tonumber(call('HGET', gifts, 'n' .. f[3]) or 0) <= 0 then
        drop_gift(f[3])
    end
    call('DEL', rec, chunks)
    call('HSET', rec, 's', row[1], 'm', row[2], 'e', row[3], 'a', row[4],
        't', row[5], 'u', row[6], 'd', row[7], 'c', row[8], 'l', row[9],
        'r', row[10], 'o', token, gone and 'h' or 'v', gone and 1 or value)
    if f[13] then
        call('HSET', rec, 'k', 1)
    end
    if ttl >= 0 then
        call('PEXPIRE', rec, ttl)
    end
    if gone and (#waiting > 0 or f[13]) then
        give(row, waiting, ttl)
    end
    local message = 'A' .. ARGV[11]
    local sent = #value * #waiting / 2
    if #value <= tonumber(ARGV[9]) and sent <= SENT_MAX then
        message = table.concat({'S' .. ARGV[11], row[1], row[2], epoch, row[4],
            ttl < 0 and '-1' or digits(ttl * 1000), row[8], gone and 1 or 0,
            #label, #row[10]}, ' ') .. '\n' .. label .. row[10] .. value
    end
    tell(waiting, message)
end

local says, effect = judge()
local row = {unpack(f, 1, 10)}
local standing = ''
if says == 3 and hidden then
    standing = call('HGET', gifts, 'v' .. f[3])
    if not standing then -- nobody was to see it, but it stands
        says, standing = 5, ''
    end
elseif says == 3 and state ~= 'G' then
    standing = call('HGET', rec, 'v') or ''
end
if effect and outcome ~= 'A' then
    settle()
elseif effect and runs then
    call('DEL', rec, chunks)
    tell(call('HGETALL', waits), 'A' .. ARGV[11])
end
if says == 3 then
    return {3, now, 0, row, standing}
elseif says == 5 then
    return {5, now, runs and call('HLEN', waits) or 0, row}
end
return {says, now}
