-- SPDX-License-Identifier: MIT
-- renew.lua - leases of places that are held or queued for, of several pools.
--
-- KEYS  those of the first pool, of the second and so on, see places.lua
-- ARGV  lease (us), channel, then for each place the number of its pool, from
--       1 on, its token, and 1 if it has started
-- gives for each what acquire.lua gives; says 0: it was lost
--@ places
local us, channel = span(ARGV[1]), ARGV[2]
local pools, out = {}, {}

local function renew(p, token, started)
    if not p.there or not p.known then
        return answer(p, 0)
    end
    local first = not p.reaped
    if first then
        reap(p)
        p.reaped = true
    end
    local s = find(p, token)
    if s then
        lease(p, token, us)
    end
    local starts = s and s.open and started
    if starts then
        start(p, s)
    end
    if s and (starts or s.channel ~= channel) then
        s.channel = channel
        put(p, token, s)
    end
    if first then
        local held = s and s.held
        grant(p, token, s)
        if s and s.held and not held then
            put(p, token, s)
        end
    end
    return s and not s.gone and tell_of(p, token, s) or answer(p, 0)
end

for i = 3, #ARGV, 3 do
    local nth = tonumber(ARGV[i])
    pools[nth] = pools[nth] or open(6 * nth - 5)
    out[#out + 1] = renew(pools[nth], ARGV[i + 1], ARGV[i + 2] == '1')
end
for _, p in pairs(pools) do
    if p.there and p.known then
        save(p, us)
    end
end
return out
