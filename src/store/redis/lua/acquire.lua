-- SPDX-License-Identifier: MIT
-- acquire.lua - a place: held, or queued for.
--
-- KEYS  the pool's, see places.lua
-- ARGV  token, weight, 1 to try only, lease (us), channel; the limits c, r, w
--       and the labels of law and pool, if they have none yet
-- gives says (1 own, 2 wait, 7 busy, 0 the limits never allow the weight),
--       fence, ahead, again (us), c, r, w, time
--@ places
local token, weight, try = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1'
local us, channel = span(ARGV[4]), ARGV[5]

local function make(p)
    if not p.there then
        call('HSET', p.law, 'c', ARGV[6], 'r', ARGV[7], 'w', ARGV[8],
            'l', ARGV[9], 'h', 0)
        limits_from(p, {ARGV[6], ARGV[7], ARGV[8], false})
    end
    if not p.own and not p.known then
        call('HSET', p.meta, 'l', ARGV[10])
    end
end

-- It is granted at once, or goes to the end of the queue.
local function come(p)
    local s = {held = false, weight = weight, fence = 0, channel = channel}
    local now = p.waiting == 0 and has_room(p, weight) and
        (p.rate == 0 or when(p, 0, weight) <= p.now)
    if not now and try then
        return nil
    end
    if p.n == 0 then
        table.insert(p.fresh, p.places)
        table.insert(p.fresh, p.ends)
    end
    p.n = p.n + 1
    lease(p, token, us)
    if now then
        let_in(p, s)
        return s
    end
    if p.waiting == 0 then
        table.insert(p.fresh, p.queue)
    end
    local last = call('ZRANGE', p.queue, -1, -1, 'WITHSCORES')[2]
    call('ZADD', p.queue, digits(tonumber(last or 0) + 1), token)
    p.waiting = p.waiting + 1
    p.extra = p.extra + weight - 1
    return s
end

local p = open(1)
make(p)
reap(p)
local s = find(p, token)
local out
if s then
    s.channel = channel
    lease(p, token, us)
    grant(p, token, s)
    out = s.gone and answer(p, 0) or tell_of(p, token, s)
else
    grant(p)
    if possible(p, weight) then
        s = come(p)
        out = s and tell_of(p, token, s) or answer(p, 7)
    else
        out = answer(p, 0)
    end
end
if s and not s.gone then
    put(p, token, s)
end
save(p, us)
return out
