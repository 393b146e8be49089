-- SPDX-License-Identifier: MIT
-- limit.lua - set the limits of a pool, for good.
--
-- KEYS  the pool's, whose limits are its own, see places.lua
-- ARGV  c, r, w, label ('': as it is)
-- gives label, c, r, w, weight held, holders, waiting, weight granted within
--       the window, time. A pool of a key reads the limits with its next step
--@ places
local p = open(1)
call('HSET', p.law, 'c', ARGV[1], 'r', ARGV[2], 'w', ARGV[3], 'x', 1, 'h',
    digits(p.held))
if ARGV[4] ~= '' or not p.known then
    p.label = ARGV[4]
    call('HSET', p.law, 'l', p.label)
end
call('PERSIST', p.law)
limits_from(p, {ARGV[1], ARGV[2], ARGV[3], '1'})
p.first = nil
reap(p)
grant(p)
save(p, 0)
return info(p)
