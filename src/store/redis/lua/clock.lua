-- SPDX-License-Identifier: MIT
-- clock.lua - the clock of the server, in microseconds, as `now`. Part of
-- every script that needs the time.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
