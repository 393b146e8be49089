# SPDX-License-Identifier: MIT
"""goals_core.py - the suite `core`: its cases, and what they must reach."""
NAME = 'core'
TITLE = 'promises, fibers, messages'
PEERS = ['floor', 'boost', 'node', 'go', 'tokio']
COLUMNS = ['vow', 'c-pool', 'c-malloc', 'c-mutex', 'boost', 'node', 'go-p1',
           'go-p2', 'tokio']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('chain', 'ns', 'chain', 'one then-link of a chain of 1,000,000, warm'),
    ('chain-cold', 'ns', 'chain', 'the same, first run in the process'),
    ('fanout', 'ns', 'fanout',
     'one of 1,000,000 handlers on one promise, warm'),
    ('fanout-cold', 'ns', 'fanout', 'the same, first run in the process'),
    ('cycle', 'ns', 'cycle',
     'create, handler, resolve, run, free, one at a time'),
    ('cycle-derived', 'ns', 'cycle',
     'ours again; the floor with two objects, as ours'),
    ('cycle-turn', 'ns', 'cycle',
     'the same, each with a turn of the loop by hand'),
    ('switch', 'ns', 'switch', 'one raw switch of stacks'),
    ('await', 'ns', 'await',
     'await of a promise that the other fiber settles'),
    ('yield', 'ns', 'yield', 'giving way to the other fiber'),
    ('spawn', 'ns', 'spawn', 'start a fiber and await its result'),
    ('post-1', 'ns', 'post-1', 'one message to the loop, 1 sending thread'),
    ('post-4', 'ns', 'post-4', 'one message to the loop, 4 sending threads'),
    ('link-bytes', 'bytes', 'link-bytes', 'one pending link, by the pools'),
    ('link-rss', 'bytes', 'link-bytes', 'one pending link, resident'),
    ('fiber-bytes', 'bytes', 'fiber-bytes',
     'one of 100,000 waiting fibers, resident'),
    ('fiber-tables', 'bytes', 'fiber-bytes',
     'its page tables, in the kernel'),
]

# What the peers can do of it.
ALL = ['chain', 'fanout', 'cycle', 'await', 'yield', 'spawn', 'post-1',
       'post-4', 'link-bytes', 'fiber-bytes']
RUNS = {
    'vow': ALL + ['switch'],
    'c-pool': ['chain', 'fanout', 'cycle', 'link-bytes'],
    'c-malloc': ['chain', 'fanout', 'cycle', 'link-bytes'],
    'c-mutex': ['post-1', 'post-4'],
    'boost': ['switch'],
    'node': ['chain', 'fanout', 'cycle', 'await', 'yield', 'link-bytes'],
    'go-p1': ALL,
    'go-p2': ALL,
    'tokio': ALL,
}
TOGETHER = []

GO = ['go-p1', 'go-p2']

# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    ('then-link', 'chain', 'at_most', 4.0, 'floor', (['c-pool'], 'chain')),
    ('then-link', 'chain', 'faster', 10.0, 'Node', (['node'], 'chain')),
    ('then-link', 'chain', 'faster', 8.0, 'tokio', (['tokio'], 'chain')),
    ('fan-out', 'fanout', 'faster', 10.0, 'Node', (['node'], 'fanout')),
    ('cycle', 'cycle', 'at_most', 4.0, 'floor', (['c-pool'], 'cycle')),
    ('cycle', 'cycle', 'faster', 4.0, "Node's await", (['node'], 'cycle')),
    ('raw switch', 'switch', 'at_most', 1.3, "Boost's jump",
     (['boost'], 'switch')),
    ('await', 'await', 'faster', 2.0, "Go's channel ping-pong", (GO, 'await')),
    ('await', 'await', 'faster', 2.0, "tokio's task switch",
     (['tokio'], 'yield')),
    ('fiber start+finish', 'spawn', 'faster', 3.0, 'a goroutine',
     (GO, 'spawn')),
    ('post, 1 sender', 'post-1', 'at_most', 2.0, 'mutex queue + uv_async',
     (['c-mutex'], 'post-1')),
    ('post, 4 senders', 'post-4', 'at_most', 2.0, 'mutex queue + uv_async',
     (['c-mutex'], 'post-4')),
    ('pending link', 'link-bytes', 'below', 128.0, 'bytes', None),
]

NOTES = """\
`vow` is the library with default options, `c-pool` and `c-malloc` the bare-C
floor (one object per link and a callback, nothing else), `c-mutex` a hand-made
queue under a mutex with uv_async, `boost` the bare jump of Boost.Context.
`go-p1` and `go-p2` are Go with one and two processors, `tokio` its
current-thread runtime. bench/peers has their programs.

Links of Go and tokio are a goroutine or task and a channel each. Go and tokio
read a settled channel at once, so their `cycle` has no queue in it. Their
`post` delivers into a channel, ours and `c-mutex` run a function. `fiber-bytes`
of tokio are stackless tasks.
"""
