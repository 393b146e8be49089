# SPDX-License-Identifier: MIT
"""goals_named.py - the suite `named`: its cases, and what they must reach."""
NAME = 'named'
TITLE = 'named work'
PEERS = ['go', 'beside', 'cat']
COLUMNS = ['vow', 'go-p1', 'go-p2', 'c-sqlite', 'c-dgram', 'cat']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('share-hot', 'ns', 'share-hot',
     'one of 1,000 askers of one name at once, all alike'),
    ('share-hot-runs', 'runs', 'share-hot', 'of the work, for 1,000 askers'),
    ('share-hot-own', 'ns', 'share-hot',
     'the same, each with an argument of its own'),
    ('share-hot-own-runs', 'runs', 'share-hot',
     'of the work, for 1,000 askers'),
    ('share-one', 'ns', 'share-one',
     'a name that nobody else asks for, one at a time'),
    ('share-many', 'ns', 'share-many', 'the same, 1,000 names at once'),
    ('share-kept', 'ns', 'share-kept',
     'one at a time, and the result is kept'),
    ('share-cached', 'ns', 'share-kept', 'a result that was kept'),
    ('name', 'ns', 'name', 'making a name of a text of 21 bytes'),
    ('claim', 'names/s', 'claim',
     'claimed and settled in the store of a folder, by one process'),
    ('claim-at-1k', 'us', 'records',
     'a name claimed and settled, in a folder with 1,000 records'),
    ('claim-at-1m', 'us', 'records',
     'the same in a folder with 1,000,000 records'),
    ('fair-least', 'of most', 'fair',
     '50 processes claim and settle for 5 s: what the least served one had'),
    ('fair-wait', 'ms', 'fair', 'the longest time for one step of these'),
    ('fair-rate', 'names/s', 'fair', 'of all together'),
    ('wake-p50', 'us', 'wake',
     'from the end of the work in one process until the asker in another has '
     'the result; the authorities live on the loops that ask, as in the '
     'command'),
    ('wake-p99', 'us', 'wake', 'the same, of 99 in 100'),
    ('wake-floor-p50', 'us', 'wake',
     'the least transaction of bare SQLite, and a datagram'),
    ('wake-floor-p99', 'us', 'wake', 'the same, of 99 in 100'),
    ('wake-thread-p50', 'us', 'wake',
     'as wake, and both authorities have a thread of their own'),
    ('wake-thread-p99', 'us', 'wake', 'the same, of 99 in 100'),
    ('wake-thread-floor-p50', 'us', 'wake',
     'as wake-floor, and one wake-up of a thread on either side'),
    ('wake-thread-floor-p99', 'us', 'wake', 'the same, of 99 in 100'),
    ('takeover-p50', 'ms', 'takeover',
     'from kill -9 of the runner until the next one begins'),
    ('takeover-max', 'ms', 'takeover', 'the longest of 40'),
    ('cached-1k', 'us', 'cached',
     '`vow share` from its start to its end, when the result of 1 KB is kept'),
    ('cached-1m', 'us', 'cached', 'the same with 1 MB'),
    ('cached-pipe', 'us', 'cached', '1 MB into a pipe'),
]

# Who is measured in turns with ours has a program that gives the rows of both.
RUNS = {
    'vow': ['share-hot', 'share-one', 'share-many', 'share-kept', 'name',
            'records', 'takeover'],
    'go-p1': ['share-hot', 'share-one', 'share-many'],
    'go-p2': ['share-hot', 'share-one', 'share-many'],
    'c-sqlite': ['claim', 'fair'],
    'c-dgram': ['wake'],
    'cat': ['cached'],
}
TOGETHER = []

GO = ['go-p1', 'go-p2']
FLIGHT = "Go's singleflight"


def flight(work, row):
    return (work, row, 'faster', 2.0, FLIGHT, (GO, row))


# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    flight('a hot name, askers alike', 'share-hot'),
    flight('a hot name, own arguments', 'share-hot-own'),
    flight('distinct names, 1,000 at once', 'share-many'),
    ('distinct names, one at a time', 'share-one', 'faster', 1.5,
     FLIGHT + ' on one processor', (['go-p1'], 'share-one')),
    ('claim and commit, one process', 'claim', 'at_least', 0.7,
     'bare SQLite transactions', (['c-sqlite'], 'claim')),
    ('a claim at 1,000,000 records', 'claim-at-1m', 'at_most', 1.3,
     'a claim at 1,000', (['vow'], 'claim-at-1k')),
    ('50 processes claim, least served', 'fair-least', 'above', 0.5,
     'of the most served', None),
    ('50 processes claim, worst wait', 'fair-wait', 'below', 200, 'ms', None),
    ('wake-up of a process', 'wake-p50', 'at_most', 5.0, 'a datagram',
     (['c-dgram'], 'wake-p50')),
    ('wake-up of a process, p99', 'wake-p99', 'below', 1000, 'us', None),
    ('the same, authorities with threads', 'wake-thread-p50', 'at_most', 5.0,
     'a datagram', (['c-dgram'], 'wake-thread-p50')),
    ('the same, p99', 'wake-thread-p99', 'below', 1000, 'us', None),
    ('takeover after kill -9, longest', 'takeover-max', 'never_above', 50,
     'ms', None),
    ('cached result, 1 KB', 'cached-1k', 'at_most', 2.0, 'cat',
     (['cat'], 'cached-1k')),
    ('cached result, 1 MB', 'cached-1m', 'at_most', 2.0, 'cat',
     (['cat'], 'cached-1m')),
    ('cached result, 1 MB by a pipe', 'cached-pipe', 'at_most', 2.0, 'cat',
     (['cat'], 'cached-pipe')),
]

NOTES = """\
`go-p1` and `go-p2` are the singleflight of Go's x/sync with one and two
processors. Of a hot key 1,000 goroutines ask again and again, and the work
gives way once, so that the others can join; how often it ran for 1,000 askers
is beside it. Distinct keys are asked for by one goroutine, whose work does
nothing, and by 1,000, whose work gives way. One at a time is judged beside one
processor: with two, the second one collects Go's garbage. Ours are futures with a handler in
one loop, on the store "memory:". Names and keys are made before the time is
taken; what a name costs is a row of its own. The million records of
`claim-at-1m` are copies of one record, put into the file by SQLite itself.

The others are measured in turns with ours, by the same program. `c-sqlite` is
SQLite by itself with the same journal and durability: an immediate transaction
with one `INSERT ... ON CONFLICT` each to claim a name and to settle it with
100 bytes, and its own way of waiting for others. `c-dgram` is one datagram from
process to process. `wake-floor` is such a transaction of SQLite, after the
other process has written, and then a datagram between sockets that are
connected; its `-thread` form wakes a thread before the transaction, and one
behind the datagram. The floor alone takes 1.7 to 4.3 times a datagram, with
threads 3.2 to 6.6 times, the more the busier the machine is: who is told by a
datagram runs where the sender did, and a thread that is woken first waits for a
processor. Ours is taken from where the work settles its promise, so
that the commit is in it, to the first line of the other's fiber behind its
await. `cat` writes a file with the same bytes; both write to /dev/null, and to
a pipe in `cached-pipe`; a hundred other results were put into the store before,
each by a command of its own. Medians of 200 in each round. Of `takeover-max`
the worst of all rounds is judged, not the median.
"""
