-- SPDX-License-Identifier: MIT
-- peek.lua - what claims would find, without changing anything. The record is
-- described in claim.lua.
--
-- KEYS  p:{H}, p:{H}:w of each name
-- gives now, then of each name: status (0 none, 2 waiting, 3 settled, 4 doubt),
--       registered instances, and the row; without a record no row. A lapsed
--       lease has status none and a row.
local call = redis.call
--@ clock
local out = {now}
for i = 1, #KEYS / 2 do
    local f = call('HMGET', KEYS[2 * i - 1], 's', 'm', 'e', 'f', 'a', 't', 'd',
        'c', 'l', 'r', 'L', 'h', 'g')
    --@ refresher
    --@ view
    if status == 0 and not runs then
        out[i + 1] = {0, 0}
    else
        out[i + 1] = {status, runs and call('HLEN', KEYS[2 * i]) or 0,
            {unpack(f, 1, 11)}}
    end
end
return out
