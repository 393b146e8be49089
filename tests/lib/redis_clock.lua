-- SPDX-License-Identifier: MIT
-- redis_clock.lua - in place of clock.lua in the scripts of a test: the time is
-- in the key PREFIX:test-clock, else the clock of the server. A script gets the
-- prefix from its first key.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
now = tonumber(redis.call('GET', string.match(KEYS[1], '^(.-)[ps]:{') ..
    'test-clock') or now)
