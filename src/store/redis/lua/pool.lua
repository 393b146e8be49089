-- SPDX-License-Identifier: MIT
-- pool.lua - tell of a pool, and do what is due in it.
--
-- KEYS  the pool's, see places.lua
-- ARGV  from which pool of a key on, if those with a queue are to be named
-- gives what limit.lua gives; nothing if there is no such pool
--@ places
local p = open(1)
if not p.own and p.waiting == 0 then
    call('ZREM', p.waits, p.meta:sub(#p.law + 2))
end
if not p.there or not p.known then
    return false
end
local n, waiting = p.n, p.waiting
reap(p)
grant(p)
local out = info(p, ARGV[1])
if p.n ~= n or p.waiting ~= waiting or
    (p.n == 0 and not p.own) then
    save(p, 0)
end
return out
