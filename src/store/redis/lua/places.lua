-- SPDX-License-Identifier: MIT
-- places.lua - what the scripts on pools share: a pool is opened, whose lease
-- is over goes, heads of the queue are granted, the pool is saved.
--
-- KEYS of a pool are six, in one slot. T is the printable name of the pool
-- whose limits count, X that of the pool itself if it is one of many keys:
--   s:{T}       hash  c r w limits  x 1 if they were set on purpose  l label
--                     and as long as it is a pool of its own, the next line
--   s:{T}:X     hash  l label  h weight held  n holders
--                     e weight above 1 of each in the queue
--                     f last fence  t time of the last step  o see `now`
--                     y weight held whose start is not in the log
--                     k until when its keys are kept (us of the server)
--                     m the same, of the law, for the pools of its keys
--   ...:p       hash  token -> "HELD WEIGHT FENCE LATE CHANNEL"; HELD is 0
--                     in the queue, 1, or 2: its start is not in the log.
--                     LATE was when to ask again: an older vow tells a new
--                     head if that could ask sooner, so it is always late
--   ...:q       zset  token -> number in the queue
--   ...:e       zset  token -> end of its lease, of all that hold and queue
--   ...:g       zset  "SUM WEIGHT BEGAN" -> time of the newest start in it
-- A grant is told to its channel by G and the token. A pool that lost one of
-- its keys loses all its places: who holds one hears of it when it renews.
--
-- Time is the server's, and stands when that goes back: o is what it went back
-- by, so that no lease gets longer and no window shorter.
--
-- Everything has an end: limits that were set on purpose have none, all else
-- is kept for a day after its last use and the last lease. A pool of one key
-- goes when nobody uses it and its window has passed.
local DAY = 86400000000
local MOST = 1125899906842624
local ACCEPT = 2000000
local SWEEP = 64
local GRANTS = 128
local PARTS = 256
local LATE = ' 9007199254740991 '

local call = redis.call
--@ clock
local real = now

local function digits(n)
    return string.format('%.0f', n)
end

local function span(text)
    return math.min(tonumber(text) or 0, MOST)
end

-- The limits are the law's; `there` if it has some.
local function limits_from(p, v)
    p.there = v[1] ~= false
    p.most = tonumber(v[1] or 0)
    p.rate = tonumber(v[2] or 0)
    p.window_text = v[3] or '0'
    p.window = span(p.window_text)
    p.on_purpose = v[4] ~= false
end

-- All that a step needs to know; `at` is the first of its keys.
local function open(at)
    local p = {law = KEYS[at], meta = KEYS[at + 1], places = KEYS[at + 2],
        queue = KEYS[at + 3], ends = KEYS[at + 4], log = KEYS[at + 5],
        fresh = {}}
    p.own = p.law == p.meta
    local v = call('HMGET', p.meta, 'c', 'r', 'w', 'x', 'l', 'h', 'e', 'f',
        't', 'o', 'k', 'm', 'n', 'y')
    p.known = v[5] ~= false or v[6] ~= false
    p.label = v[5] or ''
    p.held = tonumber(v[6] or 0)
    p.extra = tonumber(v[7] or 0)
    p.fence = tonumber(v[8] or 0)
    local last, back = tonumber(v[9] or 0), tonumber(v[10] or 0)
    p.back = math.max(back, last - real)
    p.now = real + p.back
    p.kept = tonumber(v[11] or 0)
    p.law_kept = tonumber(v[12] or 0)
    p.holders = tonumber(v[13] or 0)
    p.open = tonumber(v[14] or 0)
    if not p.own then
        v = call('HMGET', p.law, 'c', 'r', 'w', 'x', 'f', 'k', 'm')
        p.fence = math.max(p.fence, tonumber(v[5] or 0))
        p.law_end = tonumber(v[6] or 0)
        p.law_kept = tonumber(v[7] or 0)
    end
    limits_from(p, v)
    p.n = call('ZCARD', p.ends)
    p.waiting = call('ZCARD', p.queue)
    p.first = p.rate > 0 and p.waiting > 0 and
        call('ZRANGE', p.queue, 0, 0)[1]
    if p.n ~= call('HLEN', p.places) or p.n ~= p.holders + p.waiting or
        (p.n > 0 and not p.there) then
        call('DEL', p.places, p.queue, p.ends)
        p.n, p.holders, p.waiting, p.held, p.extra = 0, 0, 0, 0, 0
        p.open = 0
    end
    return p
end

-- ---- one place -----------------------------------------------------------

local function put(p, token, s)
    call('HSET', p.places, token,
        (s.open and '2 ' or s.held and '1 ' or '0 ') ..
        digits(s.weight) .. ' ' .. digits(s.fence) .. LATE .. s.channel)
end

local function lease(p, token, us)
    call('ZADD', p.ends, digits(p.now + us), token)
end

local function leave_queue(p, token, s)
    call('ZREM', p.queue, token)
    p.waiting = p.waiting - 1
    p.extra = p.extra - (s.weight - 1)
end

local start -- see below

local function drop(p, token, s)
    if s.open then
        start(p, s)
    end
    call('HDEL', p.places, token)
    call('ZREM', p.ends, token)
    p.n = p.n - 1
    if s.held then
        p.held = p.held - s.weight
        p.holders = p.holders - 1
    else
        leave_queue(p, token, s)
    end
end

local function look(p, token)
    local text = call('HGET', p.places, token)
    if not text then
        return nil
    end
    local held, weight, fence, channel =
        text:match('^(%d) (%d+) (%d+) %d+ (.*)$')
    return {held = held ~= '0', open = held == '2', weight = tonumber(weight),
        fence = tonumber(fence), channel = channel}
end

-- Whose lease is over goes, some of them in one step.
local function reap(p)
    local over = call('ZRANGEBYSCORE', p.ends, '-inf', digits(p.now),
        'LIMIT', 0, SWEEP)
    for _, token in ipairs(over) do
        drop(p, token, look(p, token))
    end
    p.more = #over == SWEEP
end

local function find(p, token)
    local s = look(p, token)
    if s and p.more and
        tonumber(call('ZSCORE', p.ends, token)) <= p.now then
        drop(p, token, s)
        return nil
    end
    return s
end

-- ---- the rate ------------------------------------------------------------

local function entry(p, nth)
    local found = call('ZRANGE', p.log, nth, nth, 'WITHSCORES')
    local text = found[1]
    if not text then
        return nil
    end
    local sum, weight, began = text:match('^(%d+) (%d+) (%d+)$')
    return {sum = tonumber(sum), weight = tonumber(weight),
        began = tonumber(began), at = tonumber(found[2]), text = text}
end

-- Forget what has left the window, which is closed at both ends.
local function expire(p)
    call('ZREMRANGEBYSCORE', p.log, '-inf', '(' .. digits(p.now - p.window))
    p.oldest = entry(p, 0)
    p.newest = p.oldest and entry(p, -1)
    p.left = p.oldest and p.oldest.sum - p.oldest.weight or 0
    p.used = p.newest and p.newest.sum - p.left or 0
    p.expired = true
end

-- When the oldest units will have left: by halving, for sums rise with times.
local function leaves(p, units)
    local low, high = 0, call('ZCARD', p.log) - 1
    if p.oldest.weight >= units then
        high = 0
    end
    while low < high do
        local middle = math.floor((low + high) / 2)
        if entry(p, middle).sum - p.left >= units then
            high = middle
        else
            low = middle + 1
        end
    end
    return tonumber(call('ZRANGE', p.log, low, low, 'WITHSCORES')[2]) +
        p.window + 1
end

-- Of all units that are still to be granted, number n can follow when number
-- n - rate has left the window. So whole rates ahead are whole windows.
local function when(p, ahead, weight)
    if not p.expired then
        expire(p)
    end
    local n = ahead + weight
    local windows = math.floor((n - 1) / p.rate)
    local over = p.used + p.open + n - windows * p.rate - p.rate
    local at = p.now
    if over > p.used then -- what has not started counts as of now
        at = p.now + p.window + 1
    elseif over > 0 then
        at = leaves(p, over)
    end
    return math.min(at + windows * (p.window + 1), p.now + MOST)
end

-- With a rate above PARTS, starts within so small a part of the window share an
-- entry, which leaves the window when the newest of them does. A log that is
-- full nevertheless, because the limits were changed, joins the newest entry.
local function write_down(p, weight)
    if p.rate == 0 then
        return
    end
    local width = p.rate > PARTS and math.floor(p.window / PARTS) or 0
    local last = p.newest
    local joins = last and (p.now - last.began <= width or
        last.at >= p.now or
        call('ZCARD', p.log) > PARTS)
    local e = {sum = (last and last.sum or 0) + weight,
        weight = weight + (joins and last.weight or 0),
        began = joins and last.began or p.now, at = p.now}
    e.text = digits(e.sum) .. ' ' .. digits(e.weight) .. ' ' ..
        digits(e.began)
    if joins then
        call('ZREM', p.log, last.text)
    elseif not last then
        table.insert(p.fresh, p.log)
    end
    call('ZADD', p.log, digits(p.now), e.text)
    if not last or (joins and p.oldest.text == last.text) then
        p.oldest = e
    end
    p.newest = e
    p.used = p.used + weight
end

-- It has started by now.
start = function(p, s)
    if not p.expired then
        expire(p)
    end
    s.open = false
    p.open = p.open - s.weight
    write_down(p, s.weight)
end

-- ---- granting ------------------------------------------------------------

local function tell(token, s)
    call('PUBLISH', s.channel, 'G' .. token)
end

-- Will it ever fit?
local function possible(p, weight)
    return (p.most == 0 or weight <= p.most) and
        (p.rate == 0 or weight <= p.rate)
end

local function has_room(p, weight)
    return p.most == 0 or p.held + weight <= p.most
end

local function let_in(p, s)
    p.fence = math.max(real, p.fence + 1)
    p.held = p.held + s.weight
    p.holders = p.holders + 1
    s.held = true
    s.fence = p.fence
    s.open = p.rate > 0
    if s.open then
        p.open = p.open + s.weight
    end
end

-- The head must wait. Under a rate a new head is told: only the head knows when
-- the rate has room.
local function blocked(p, token, s, me)
    if p.rate > 0 and token ~= p.first and token ~= me then
        tell(token, s)
    end
end

-- A place that was granted by the step of another must be fetched.
local function lend(p, token)
    local over = tonumber(call('ZSCORE', p.ends, token))
    lease(p, token, math.min(over - p.now, ACCEPT))
end

-- As many heads as fit, some of them in one step: those who come for theirs
-- make the next. `me` is the token of who asks, and `mine` its place, which the
-- caller writes; all others are told. A weight that will never fit is gone, and
-- so is a head whose lease is over.
local function grant(p, me, mine)
    for _ = 1, p.there and math.min(p.waiting, GRANTS) or 0 do
        local token = call('ZRANGE', p.queue, 0, 0)[1]
        local s = token == me and mine or look(p, token)
        if not s then
            call('ZREM', p.queue, token)
            p.waiting = p.waiting - 1
            return
        elseif p.more and
            tonumber(call('ZSCORE', p.ends, token)) <= p.now then
            drop(p, token, s)
            s.over = true
        elseif not possible(p, s.weight) then
            drop(p, token, s)
            s.gone = true
        elseif not has_room(p, s.weight) or
            (p.rate > 0 and when(p, 0, s.weight) > p.now) then
            return blocked(p, token, s, me)
        else
            leave_queue(p, token, s)
            let_in(p, s)
            if token ~= me then
                put(p, token, s)
                lend(p, token)
            end
        end
        if token ~= me and not s.over then
            tell(token, s)
        end
    end
end

-- ---- answers -------------------------------------------------------------

-- The weight of those before it: exact for the first of them, and if all weigh
-- 1; else not more than it is, so nobody asks too late.
local function weight_before(p, ahead)
    if ahead == 0 or p.extra == 0 then
        return ahead
    end
    local sum = ahead
    local first = call('ZRANGE', p.queue, 0, math.min(ahead, SWEEP) - 1)
    for _, text in ipairs(call('HMGET', p.places, unpack(first))) do
        sum = sum + tonumber(text:match('^%d (%d+)')) - 1
    end
    return sum
end

-- By the rate, if that holds it back: counted as if all before it came at once,
-- so it is never too late. Else a lease must end, and wake-ups come.
local function again(p, token, s, ahead)
    if p.rate > 0 then
        local at = when(p, weight_before(p, ahead), s.weight)
        if at > p.now then
            return at - p.now
        end
    end
    local first = call('ZRANGE', p.ends, 0, 0, 'WITHSCORES')
    local left = math.max(tonumber(first[2]) - p.now, 0)
    if tonumber(call('ZSCORE', p.ends, token)) <= tonumber(first[2]) then
        left = math.floor(left / 2)
    end
    return left + 1
end

local function answer(p, says, s, ahead, wait)
    return {says, s and s.fence or 0, ahead or 0, wait or 0, p.most, p.rate,
        p.window_text, p.now}
end

-- Of one that holds or queues.
local function tell_of(p, token, s)
    if s.held then
        return answer(p, 1, s)
    end
    local ahead = call('ZRANK', p.queue, token)
    return answer(p, 2, s, ahead, again(p, token, s, ahead))
end

-- The pool, for those who look.
local function info(p)
    expire(p)
    return {p.label, p.most, p.rate, p.window_text, p.held,
        p.holders, p.waiting, p.rate > 0 and p.used + p.open or 0, p.now}
end

-- ---- saving --------------------------------------------------------------

local function until_at(key, us)
    call('PEXPIREAT', key, digits(math.ceil(us / 1000) + 1))
end

local function write(p)
    call('HSET', p.meta, 'h', digits(p.held), 'n', digits(p.holders),
        'e', digits(p.extra), 'f', digits(p.fence), 't', digits(p.now),
        'y', digits(p.open),
        'o', digits(p.back), 'k', digits(p.kept))
end

-- A pool of one key that nobody uses.
local function rest(p)
    if not p.expired then
        expire(p)
    end
    call('HSET', p.law, 'f', digits(p.fence))
    if not p.oldest then
        call('DEL', p.meta, p.log)
        return
    end
    local last = call('ZRANGE', p.log, -1, -1, 'WITHSCORES')[2]
    p.kept = tonumber(last) - p.back + p.window + 1
    write(p)
    until_at(p.meta, p.kept)
    until_at(p.log, p.kept)
end

local function keep_law(p, us)
    if p.law_kept < us - DAY / 2 and not p.on_purpose then
        call('HSET', p.law, 'm', digits(us))
        until_at(p.law, math.max(us, p.law_end))
    end
end

-- Behind every step that changed it; `us` is the longest lease it gave.
local function save(p, us)
    local need = real + math.max(us, p.window) + DAY
    if not p.own then
        keep_law(p, need)
        if p.n == 0 then
            return rest(p)
        end
    end
    local keys = p.fresh
    if p.kept < need - DAY / 2 then
        p.kept = need
        keys = {p.places, p.queue, p.ends, p.log}
        if not p.own then
            until_at(p.meta, p.kept)
        elseif not p.on_purpose then
            until_at(p.meta, math.max(p.kept, p.law_kept))
        end
    end
    write(p)
    for _, key in ipairs(keys) do
        until_at(key, p.kept)
    end
end
