# SPDX-License-Identifier: MIT
"""goals_redis.py - the suite `redis`: its cases, and what they must reach."""
NAME = 'redis'
TITLE = 'named work over a Redis server'
PEERS = ['redis', 'locks']
COLUMNS = ['vow', 'c-redis', 'redis-benchmark', 'redlock', 'bottleneck']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('claim', 'names/s', 'claim',
     'claimed by one connection with 64 claims on the way'),
    ('claim-one', 'us', 'claim-one', 'one claim, and nothing else to do'),
    ('claim-at-1k', 'us', 'records',
     'a name claimed and settled, in a database with 1,000 records'),
    ('claim-at-1m', 'us', 'records',
     'the same in a database with 1,000,000 records'),
    ('wake-p50', 'us', 'wake',
     'from the end of the work in one process until the asker in another has '
     'the result; the authority lives on the loop that asks'),
    ('wake-p99', 'us', 'wake', 'the same, of 99 in 100'),
    ('wake-thread-p50', 'us', 'wake',
     'the same, both authorities have a thread of their own'),
    ('wake-thread-p99', 'us', 'wake', 'of 99 in 100'),
    ('wake-floor-p50', 'us', 'wake',
     'a bare message that is sent by a script with the least of a commit'),
    ('wake-floor-p99', 'us', 'wake', 'of 99 in 100'),
    ('hot-runs', 'runs', 'hot',
     'of the work, for 1,000 callers of one name in 8 processes'),
    ('hot-claims', 'claims', 'hot', 'that the server got from them'),
    ('pulse-cpu', '%', 'pulse',
     'of a core that the server takes while 1,000 names run in a process'),
    ('pulse-calls', 'per s', 'pulse', 'that the server gets from it'),
    ('lock-one', 'us', 'lock',
     'a name is locked for work that does nothing, one at a time'),
    ('lock-many', 'names/s', 'lock', 'the same, 64 at once'),
    ('lock-trips', 'trips', 'lock', 'to the server for each'),
    ('job-one', 'us', 'job',
     'a job that does nothing has a place in a pool of 16, one at a time'),
    ('job-many', 'jobs/s', 'job', 'the same, 1,000 asked for at once'),
    ('job-trips', 'trips', 'job', 'to the server for each, one at a time'),
    ('job-many-trips', 'trips', 'job', 'for each, of 1,000 at once'),
]

# Who is measured in turns with ours has a program that gives the rows of both.
RUNS = {
    'vow': ['hot', 'lock', 'job', 'records'],
    'c-redis': ['claim-one', 'wake', 'pulse'],
    'redis-benchmark': ['claim'],
    'redlock': ['lock'],
    'bottleneck': ['job'],
}
TOGETHER = []

LETTER = 'a bare message'

# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    ('claims, 64 on the way', 'claim', 'at_least', 0.8,
     'redis-benchmark, the same script', (['redis-benchmark'], 'claim')),
    ('one claim', 'claim-one', 'at_most', 1.3, 'a bare EVALSHA',
     (['c-redis'], 'claim-one')),
    ('a claim at 1,000,000 records', 'claim-at-1m', 'at_most', 1.3,
     'a claim at 1,000', (['vow'], 'claim-at-1k')),
    ('wake-up of a process, p50', 'wake-p50', 'at_most', 1.5, LETTER,
     (['c-redis'], 'wake-p50')),
    ('wake-up of a process, p99', 'wake-p99', 'at_most', 2.0, LETTER,
     (['c-redis'], 'wake-p99')),
    ('1,000 callers in 8 processes, runs', 'hot-runs', 'never_above', 1,
     'run', None),
    ('1,000 callers in 8 processes, claims', 'hot-claims', 'never_above', 8,
     'claims', None),
    ('pulses of 1,000 running names', 'pulse-cpu', 'below', 1,
     '% of a core', None),
]

NOTES = """\
Every program has a Redis server of its own, without persistence, on a local
socket. `c-redis` is a socket that blocks, with one write for a command and as
few reads as its answer takes; it is measured in turns with ours, by the same
program and on the same server. `redis-benchmark` calls the same script with
arguments of the same sizes over one connection, also in turns with ours; claims
are the store's own step there and in `claim-one`, without an authority. Every
claim is of a new name. The million records of `claim-at-1m` are copies of one
record, in another database of the same server.

In `wake` the floor is PUBLISH in one process and a subscriber that blocks in
another, with a message as long as ours. Ours is taken from where the work
settles its promise, so that the commit at the server is in it, to the first
line of the other's fiber behind its await. `wake-floor` is the same floor with
one EVALSHA in place of PUBLISH, whose script does the least that a commit must:
TIME, HMGET, HGETALL, HSET, PEXPIRE, PUBLISH and DEL. That alone takes 1.6 to
1.9 times a bare PUBLISH on a server that has just been idle, so 1.5 times for
the whole wake-up is beyond what a commit by a script can reach. Of `pulse-cpu`
the other value is a server that has nothing to do; leases last 10 s. In `hot`
the claims are counted by what the server tells by MONITOR, and the worst of all
rounds is judged.

`redlock` locks and unlocks a key, ours is `vow_share()`, which has a result for
all who wait. `bottleneck` runs a job by its clustering, ours is a place in a
pool that is taken and given back. Both sides do it by their public functions,
ours with the thread of its own that an authority has by default. Trips are the
scripts that the server ran; more than two for a job of ours are places that it
waited for, and asked for again when it was told.
"""
