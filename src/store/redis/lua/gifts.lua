-- SPDX-License-Identifier: MIT
-- gifts.lua - a hidden result leaves its record: from now on it is a gift to
-- each of the list of who waited, for the record and the list will be others'.
-- The record is described in claim.lua.
--
-- Part of scripts that have found h to be 2, in a record whose time is not
-- over: `row` begins with its row, `ends` is its end. The commit did not do
-- this, for somebody waited; most results are never asked for again.
local GIFTS_MAX = 64
local READERS_MAX = 8192
local WORDS = 200
local epoch = row[3]
local others = call('HKEYS', gifts)

-- Whose time is over goes, and of too many the oldest; all, if there are too
-- many who could read them.
local function tidy()
    local left, readers = {}, {}
    local function drop(number)
        call('HDEL', gifts, 'm' .. number, 'v' .. number, 'n' .. number)
    end
    for _, field in ipairs(others) do
        local kind, number = string.sub(field, 1, 1), string.sub(field, 2)
        local held = kind == 'm' and cmsgpack.unpack(call('HGET', gifts, field))
        if held and tonumber(held[7]) > now then
            table.insert(left, tonumber(number))
        elseif held then
            drop(number)
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
        drop(string.format('%.0f', left[i]))
    end
    for _, field in ipairs(readers) do
        local number = string.sub(call('HGET', gifts, field), 18)
        if call('HEXISTS', gifts, 'm' .. number) == 0 then
            call('HDEL', gifts, field)
        end
    end
end

if others[1] then
    tidy()
end
local listed = call('HGETALL', waits)
local given = {'m' .. epoch, cmsgpack.pack({unpack(row, 1, 10)}),
    'v' .. epoch, call('HGET', rec, 'v') or '', 'n' .. epoch, #listed / 2}
for i = 1, #listed, 2 do
    given[i + 6] = 'c' .. listed[i]
    given[i + 7] = listed[i + 1] .. '0' .. epoch
end
for i = 1, #given, WORDS do
    call('HSET', gifts, unpack(given, i, math.min(i + WORDS - 1, #given)))
end
local left = math.ceil((ends - now) / 1000)
if not others[1] or call('PTTL', gifts) < left then
    call('PEXPIRE', gifts, left)
end
call('DEL', waits)
call('HDEL', rec, 'v')
call('HSET', rec, 'h', 1)
