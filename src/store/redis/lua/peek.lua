-- SPDX-License-Identifier: MIT
-- peek.lua - what claims would find, without changing anything. The record is
-- described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w of each name
-- gives now, then of each name: says (0 none, 2 wait, 3 settled, 4 doubt), who
--       waits, and the row; without one there is no such record. One whose
--       lease has lapsed says none and has a row, as one whose last pulse is
--       yet to come: the clock was set back, and nobody knows.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function peek(rec, waits)
    local f = call('HMGET', rec, 's', 'm', 'e', 'a', 't', 'u', 'd', 'c', 'l',
        'r', 'h')
    local runs = f[1] == 'R'
    local over = tonumber(f[7] or 0) <= now or
        (runs and tonumber(f[6] or 0) > now)
    if not f[1] or (not runs and (over or f[11])) then
        return {0, 0}
    end
    local row = {unpack(f, 1, 10)}
    if not runs then
        return {3, 0, row}
    end
    return {not over and 2 or f[2] == '2' and 4 or 0, call('HLEN', waits), row}
end

local out = {now}
for i = 1, #KEYS / 2 do
    out[i + 1] = peek(KEYS[2 * i - 1], KEYS[2 * i])
end
return out
