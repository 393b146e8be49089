-- SPDX-License-Identifier: MIT
-- pool.lua - tell of a pool, and do what is due in it.
--
-- KEYS  the pool's, see places.lua
-- gives what limit.lua gives; nothing if there is no such pool
--@ places
local p = open(1)
if not p.there or not p.known then
    return false
end
local n, waiting = p.n, p.waiting
reap(p)
grant(p)
local out = info(p)
if p.n ~= n or p.waiting ~= waiting or
    (p.n == 0 and not p.own) then
    save(p, 0)
end
return out
