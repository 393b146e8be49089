# SPDX-License-Identifier: MIT
"""goals_etcd.py - the suite `etcd`: its cases, and what they must reach."""
NAME = 'etcd'
TITLE = 'named work over etcd'
PEERS = ['etcd']
COLUMNS = ['vow', 'c-http']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('claim', 'names/s', 'claim',
     'claimed over 8 connections, 64 claims asked for at once'),
    ('claim-one', 'us', 'claim-one', 'one claim, and nothing else to do'),
    ('pool-rate', 'jobs/s', 'pool',
     'of 100 processes that share a pool of 16, each job 10 ms'),
    ('pool-wait', 'ms', 'pool', 'the longest wait for a permit of these'),
]

# Who is measured in turns with ours has a program that gives the rows of both.
RUNS = {'vow': ['pool'], 'c-http': ['claim', 'claim-one']}
TOGETHER = []

# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    ('one claim', 'claim-one', 'at_most', 1.2, 'a bare transaction',
     (['c-http'], 'claim-one')),
    ('100 processes, a pool of 16', 'pool-rate', 'above', 500, 'jobs/s', None),
    ('100 processes, the longest wait', 'pool-wait', 'below', 500, 'ms', None),
]

NOTES = """\
One member of etcd, which does not wait for its disk: with a disk both sides take
longer by the same time, and the ratio is nearer to 1. `c-http` is a socket that
blocks for each connection, by which the same transaction goes to the same JSON
gateway; it does not read the answer but for one word. It is measured in turns
with ours, by the same program and on the same server. Claims are the store's own
step, without an authority, and every claim is of a new name. In `pool`, 16
permits of 10 ms allow 1,600 jobs per second, and 100 processes, each with one
request, would wait for 50 ms at that rate.
"""
