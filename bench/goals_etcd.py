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
]

# Who is measured in turns with ours has a program that gives the rows of both.
RUNS = {'c-http': ['claim', 'claim-one']}
TOGETHER = []

# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    ('one claim', 'claim-one', 'at_most', 1.2, 'a bare transaction',
     (['c-http'], 'claim-one')),
]

NOTES = """\
One member of etcd, which does not wait for its disk: with a disk both sides take
longer by the same time, and the ratio is nearer to 1. `c-http` is a socket that
blocks for each connection, by which the same transaction goes to the same JSON
gateway; it does not read the answer but for one word. It is measured in turns
with ours, by the same program and on the same server. Claims are the store's own
step, without an authority, and every claim is of a new name.
"""
