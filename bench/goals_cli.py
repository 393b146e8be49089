# SPDX-License-Identifier: MIT
"""goals_cli.py - the suite `cli`: its cases, and what they must reach."""
NAME = 'cli'
TITLE = 'the command vow map'
PEERS = ['tools', 'parallel']
COLUMNS = ['vow', 'c-vfork', 'xargs', 'parallel', 'cat']

# Rows in the order of the table: name, unit, the program's case that gives it,
# what it is.
CASES = [
    ('true-j2', 'jobs/s', 'true-j2', '20,000 times /bin/true, 2 at a time'),
    ('true-j2-cpu', 'us', 'true-j2',
     'CPU for one of them, its own and the share of the tool'),
    ('true-j16', 'jobs/s', 'true-j16', 'the same, 16 at a time'),
    ('true-j16-cpu', 'us', 'true-j16', 'CPU for one of them'),
    ('start', 'us', 'start',
     'from the start to the end of the tool for one job, `true`'),
    ('start-cpu', 'us', 'start', 'CPU for all of it'),
    ('queue-peak', 'MiB', 'queue',
     'peak of the tool, with 1,000,000 lines in its input'),
    ('group-j8', 'MB/s', 'group-j8',
     '8 jobs at a time write 200 MB each into one pipe, whole and in turn'),
    ('group-j8-cpu', 'us', 'group-j8', 'CPU for one MB, without its reader'),
    ('group-j2', 'MB/s', 'group-j2', 'the same, 2 at a time'),
    ('group-j2-cpu', 'us', 'group-j2', 'CPU for one MB, without its reader'),
]

# What the peers can do of it.
TRUE = ['true-j2', 'true-j16', 'start']
GROUP = ['group-j8', 'group-j2']
RUNS = {
    'vow': TRUE + GROUP + ['queue'],
    'c-vfork': TRUE,
    'xargs': TRUE + ['queue'],
    'parallel': TRUE + GROUP + ['queue'],
    'cat': GROUP,
}
TOGETHER = []


def of_true(case):
    work = '/bin/true, ' + case[4:]
    return [
        (work, case, 'at_least', 1.4, 'xargs -P', (['xargs'], case)),
        (work, case, 'at_least', 0.9, 'a bare vfork loop',
         (['c-vfork'], case)),
        (work, case, 'at_least', 9.0, 'GNU parallel', (['parallel'], case)),
        (work + ', CPU', case + '-cpu', 'at_most', 0.7, 'xargs -P',
         (['xargs'], case + '-cpu')),
    ]


# work, our row, kind, limit, who, (peers, their row): goals.py has the kinds.
GOALS = of_true('true-j2') + of_true('true-j16') + [
    ('start to end of one job', 'start', 'at_most', 1.5, 'xargs',
     (['xargs'], 'start')),
    ('start to end of one job', 'start', 'faster', 50.0, 'GNU parallel',
     (['parallel'], 'start')),
    ('1,000,000 queued lines', 'queue-peak', 'at_most', 2.0, 'xargs',
     (['xargs'], 'queue-peak')),
    ('grouped output, -j8', 'group-j8', 'at_least', 0.8, 'cat',
     (['cat'], 'group-j8')),
    ('grouped output, -j2', 'group-j2', 'at_least', 0.8, 'cat',
     (['cat'], 'group-j2')),
]

NOTES = """\
`vow` is `vow map` with default options, so that the output of each job is
grouped; `c-vfork` a loop of vfork, exec and wait that has no input, no output
and no groups; `xargs` is `xargs -P` with `-n1`, which mixes output; `parallel`
is GNU parallel, with a tenth of the jobs and repetitions of the others; `cat`
writes the same files into the same pipe by itself. bench/cli.py measures them
all, in the locale C.

CPU is that of the tool and of all processes it waited for. Every job has one
argument, in the loop too. Of `start` each round has the median of 500 times.
Memory is looked at after three seconds of jobs, and what a tool's own helpers
have for themselves counts too. What `group` writes goes through a pipe to a
reader that checks it, and on the way through files in the temporary folder
where the tool needs them.
"""
