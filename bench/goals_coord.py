# SPDX-License-Identifier: MIT
"""goals_coord.py - the suite `coord`: its cases, and what they must reach."""
NAME = 'coord'
TITLE = 'semaphore, gate, map'
PEERS = ['go', 'tokio', 'npm']
COLUMNS = ['vow', 'go-p1', 'go-p2', 'tokio', 'async', 'p-map', 'p-limit',
           'p-queue', 'p-throttle']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('sem-free', 'ns', 'sem-free',
     'acquire and release 3 of 16 that are free'),
    ('sem-free-try', 'ns', 'sem-free',
     'ours again; the peers by their try form'),
    ('sem-free-future', 'ns', 'sem-free',
     'the same by a future and a handler'),
    ('sem-queue', 'ns', 'sem-queue',
     'one of 100,000 waiters of weight 1 to 4, enqueue and drain, warm'),
    ('sem-queue-cold', 'ns', 'sem-queue',
     'the same, first run in the process'),
    ('sem-bytes', 'bytes', 'sem-bytes', 'one of them waiting, resident'),
    ('map-now', 'ns', 'map-now',
     'one of 1,000,000 tasks, 16 at a time, that end at once'),
    ('map-now-peak', 'MiB', 'map-now', 'peak of the process'),
    ('map-now-grows', 'bytes', 'map-now',
     'of it for each task beyond 100,000'),
    ('map-queue', 'ns', 'map-queue',
     "the same, through the loop's or scheduler's queue"),
    ('map-queue-peak', 'MiB', 'map-queue', 'peak of the process'),
    ('map-queue-grows', 'bytes', 'map-queue',
     'of it for each task beyond 100,000'),
    ('gate-free', 'ns', 'gate-free',
     'admission that need not wait, and release'),
    ('gate-run', 'ns', 'gate-run',
     'a job that need not wait, to its end, one at a time'),
    ('rate-cpu', 'ns', 'rate-queue',
     'CPU for one of 100,000 jobs at 25,000 per 250 ms'),
    ('rate-total', 's', 'rate-queue', 'until all have run; 0.75 is exact'),
    ('exact-spans', 'spans', 'exact',
     '500 starts at 50 per second: spans of 1000 ms with more than 50'),
    ('exact-most', 'starts', 'exact', 'the most in one span'),
    ('exact-total', 's', 'exact', 'until the last start; 9 is exact'),
    ('late-spans', 'spans', 'late',
     'the same with 1 start at 0 ms and 499 asked for at 900 ms'),
    ('late-most', 'starts', 'late', 'the most in one span'),
    ('late-total', 's', 'late',
     'from 900 ms until the last start; 9 is exact'),
    ('sem-1k', 'ns', 'sem-growth',
     'semaphore, enqueue and drain with 1,000 in the queue'),
    ('sem-1m', 'ns', 'sem-growth', 'with 1,000,000'),
    ('sem-growth', 'times', 'sem-growth', 'the second over the first'),
    ('gate-1k', 'ns', 'gate-growth',
     'gate, enqueue and run with 1,000 in the queue'),
    ('gate-1m', 'ns', 'gate-growth', 'with 1,000,000'),
    ('gate-growth', 'times', 'gate-growth', 'the second over the first'),
    ('prio-1k', 'ns', 'prio-growth',
     'gate, the same with 32 priorities mixed'),
    ('prio-1m', 'ns', 'prio-growth', 'with 1,000,000'),
    ('prio-growth', 'times', 'prio-growth', 'the second over the first'),
]

# What the peers can do of it.
RUNS = {
    'vow': [case for _, _, case, _ in CASES],
    'go-p1': ['sem-free', 'sem-queue', 'sem-bytes', 'map-queue', 'gate-free',
              'rate-queue'],
    'go-p2': ['sem-free', 'sem-queue', 'sem-bytes', 'map-queue', 'gate-free',
              'rate-queue', 'exact', 'late'],
    'tokio': ['sem-free', 'sem-queue', 'sem-bytes', 'map-now', 'map-queue'],
    'async': ['map-queue'],
    'p-map': ['map-queue'],
    'p-limit': ['map-queue'],
    'p-queue': ['gate-run', 'rate-queue', 'exact', 'late'],
    'p-throttle': ['gate-run', 'rate-queue', 'exact', 'late'],
}
# They sleep nearly all the time, so all of them run at once.
TOGETHER = ['exact', 'late']

GO = ['go-p1', 'go-p2']

# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = [
    ('semaphore, free', 'sem-free', 'faster', 1.5, 'Go x/sync',
     (GO, 'sem-free')),
    ('semaphore, free', 'sem-free', 'faster', 3.0, 'tokio',
     (['tokio'], 'sem-free')),
    ('semaphore, 100,000 wait', 'sem-queue', 'faster', 4.0, 'tokio',
     (['tokio'], 'sem-queue')),
    ('memory of a waiter', 'sem-bytes', 'at_most', 0.2, "Go's",
     (GO, 'sem-bytes')),
    ('map, tasks end at once', 'map-now', 'faster', 1.0,
     "tokio's buffer_unordered", (['tokio'], 'map-now')),
    ('map, through the queue', 'map-queue', 'faster', 2.0,
     "tokio's spawned tasks", (['tokio'], 'map-queue')),
    ('map, through the queue', 'map-queue', 'faster', 2.0, 'async.mapLimit',
     (['async'], 'map-queue')),
    ('map, through the queue', 'map-queue', 'faster', 25.0, 'p-limit',
     (['p-limit'], 'map-queue')),
    ('map, memory, at once', 'map-now-grows', 'below', 1.0,
     'bytes for each further task', None),
    ('map, memory, queue', 'map-queue-grows', 'below', 1.0,
     'bytes for each further task', None),
    ('gate, free', 'gate-free', 'faster', 3.0, "Go x/time/rate's Allow",
     (GO, 'gate-free')),
    ('100,000 wait for rate, CPU', 'rate-cpu', 'faster', 15.0,
     "Go x/time/rate's Wait", (GO, 'rate-cpu')),
    ('100,000 wait for rate, CPU', 'rate-cpu', 'faster', 15.0,
     'p-queue strict', (['p-queue'], 'rate-cpu')),
    ('50 per second', 'exact-spans', 'never_above', 0, 'spans above 50', None),
    ('50 per second', 'exact-total', 'below', 9.05, 's', None),
    ('50 per second, late load', 'late-spans', 'never_above', 0,
     'spans above 50', None),
    ('50 per second, late load', 'late-total', 'below', 9.05, 's', None),
    ('1 k to 1 M, semaphore', 'sem-growth', 'below', 1.5, 'times', None),
    ('1 k to 1 M, gate', 'gate-growth', 'below', 1.5, 'times', None),
    ('1 k to 1 M, priorities', 'prio-growth', 'below', 2.0,
     'times, as the logarithm', None),
]

NOTES = """\
`go-p1` and `go-p2` are Go's x/sync (semaphore, errgroup) and x/time/rate with
one and two processors, `tokio` its Semaphore and the buffered streams of
futures on the current-thread runtime; `p-queue` is in its strict mode, and
`p-throttle`, as Go's limiter, in its default one. bench/peers has their
programs.

A waiter of Go and of tokio is a goroutine or a task, ours is a future with a
handler. The map's results are added up as they complete; those of npm's come as
an array, and are resident with their input. `gate-free` and `gate-run` of ours
have rate and concurrency set, of the peers what they have of it. A start counts
when the job reads the clock. A span is 1000 ms long with both ends included,
and one is looked at for each start, as its end. Of `-spans` the worst of all
rounds is judged, not the median.
"""
