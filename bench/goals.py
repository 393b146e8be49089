# SPDX-License-Identifier: MIT
"""goals.py - the cases of the core suite, what they must reach, and the table.

A sample is one row of one round: (case, peer) -> [values]. Everything shown is
the median over the rounds of one run; a ratio is a ratio of medians.
"""
import statistics

OURS = 'vow'
COLUMNS = ['vow', 'c-pool', 'c-malloc', 'c-mutex', 'boost', 'node', 'go-p1',
           'go-p2', 'tokio']

# Rows in the order of the table: name, unit, what it is.
CASES = [
    ('chain', 'ns', 'one then-link of a chain of 1,000,000, warm'),
    ('chain-cold', 'ns', 'the same, first run in the process'),
    ('fanout', 'ns', 'one of 1,000,000 handlers on one promise, warm'),
    ('fanout-cold', 'ns', 'the same, first run in the process'),
    ('cycle', 'ns', 'create, handler, resolve, run, free, one at a time'),
    ('cycle-derived', 'ns', 'ours again; the floor with two objects, as ours'),
    ('cycle-turn', 'ns', 'the same, each with a turn of the loop by hand'),
    ('switch', 'ns', 'one raw switch of stacks'),
    ('await', 'ns', 'await of a promise that the other fiber settles'),
    ('yield', 'ns', 'giving way to the other fiber'),
    ('spawn', 'ns', 'start a fiber and await its result'),
    ('post-1', 'ns', 'one message to the loop, 1 sending thread'),
    ('post-4', 'ns', 'one message to the loop, 4 sending threads'),
    ('link-bytes', 'bytes', 'one pending link, by the pools'),
    ('link-rss', 'bytes', 'one pending link, resident'),
    ('fiber-bytes', 'bytes', 'one of 100,000 waiting fibers, resident'),
    ('fiber-tables', 'bytes', 'its page tables, in the kernel'),
]

# What the programs are asked for. Some asked for once give several rows.
PROGRAMS = ['chain', 'fanout', 'cycle', 'switch', 'await', 'yield', 'spawn',
            'post-1', 'post-4', 'link-bytes', 'fiber-bytes']
RUNS = {
    'vow': PROGRAMS,
    'c-pool': ['chain', 'fanout', 'cycle', 'link-bytes'],
    'c-malloc': ['chain', 'fanout', 'cycle', 'link-bytes'],
    'c-mutex': ['post-1', 'post-4'],
    'boost': ['switch'],
    'node': ['chain', 'fanout', 'cycle', 'await', 'yield', 'link-bytes'],
    'go-p1': [c for c in PROGRAMS if c != 'switch'],
    'go-p2': [c for c in PROGRAMS if c != 'switch'],
    'tokio': [c for c in PROGRAMS if c != 'switch'],
}

GO = ['go-p1', 'go-p2']

# work, our case, kind, limit, who, (peers, their case)
#   at_most: our time is at most so many times theirs
#   faster:  their time is at least so many times ours; of several the fastest
#   below:   our value is at most so much
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
    ('fiber start+finish', 'spawn', 'faster', 3.0, 'a goroutine', (GO, 'spawn')),
    ('post, 1 sender', 'post-1', 'at_most', 2.0, 'mutex queue + uv_async',
     (['c-mutex'], 'post-1')),
    ('post, 4 senders', 'post-4', 'at_most', 2.0, 'mutex queue + uv_async',
     (['c-mutex'], 'post-4')),
    ('pending link', 'link-bytes', 'below', 128.0, 'bytes', None),
]


def needed(chosen):
    """What the goals of the chosen cases compare with: {(case, peer)}."""
    return {(theirs[1], p) for _, case, _, _, _, theirs in GOALS
            if theirs and case in chosen for p in theirs[0]}


def medians(samples):
    return {key: statistics.median(v) for key, v in samples.items()}


def number(v):
    if v >= 1000:
        return f'{v:,.0f}'
    return f'{v:.0f}' if v >= 100 else f'{v:.1f}' if v >= 10 else f'{v:.2f}'


def times(v):
    return f'{v:.0f}x' if v >= 100 else f'{v:.1f}x'


def table(mid):
    """Lines of cells: a head, then one line per case that was measured. A
    peer's cell has its value and how many times ours that is."""
    peers = [p for p in COLUMNS if any(p == peer for _, peer in mid)]
    lines = [['case', 'unit'] + peers]
    for case, unit, _ in CASES:
        ours = mid.get((case, OURS))
        line = [case, unit]
        for p in peers:
            v = mid.get((case, p))
            if v is None:
                line.append('')
            elif p == OURS or not ours:
                line.append(number(v))
            else:
                line.append(f'{number(v)} {times(v / ours)}')
        if any(line[2:]):
            lines.append(line)
    return lines


def judge(mid, goal):
    """One goal: (text, True or False, or None when it was not measured)."""
    _, case, kind, limit, who, theirs = goal
    ours = mid.get((case, OURS))
    if kind == 'below':
        text = f'goal <= {limit:.0f} {who}'
        if ours is None:
            return f'{text}: not measured', None
        return f'{text}: {number(ours)}', ours <= limit
    text = (f'goal <= {limit:.1f}x {who}' if kind == 'at_most'
            else f'goal >= {limit:.1f}x faster than {who}')
    found = [mid[(theirs[1], p)] for p in theirs[0] if (theirs[1], p) in mid]
    if ours is None or not found:
        return f'{text}: not measured', None
    best = min(found)
    if kind == 'at_most':
        return f'{text}: {ours / best:.2f}x', ours <= limit * best
    return f'{text}: {best / ours:.2f}x', best >= limit * ours


def verdicts(mid, chosen):
    """(work, text, verdict) for each goal of the chosen cases."""
    words = {True: 'yes', False: 'NO', None: '-'}
    lines = []
    for goal in GOALS:
        if goal[1] in chosen:
            text, reached = judge(mid, goal)
            lines.append((goal[0], text, words[reached]))
    return lines


def align(lines):
    """Cells to text: the first two columns to the left, the rest right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = []
    for line in lines:
        cells = [c.ljust(w) if i < 2 else c.rjust(w)
                 for i, (c, w) in enumerate(zip(line, widths))]
        out.append('  '.join(cells).rstrip())
    return '\n'.join(out)


def markdown(lines):
    head, rest = lines[0], lines[1:]
    rule = ['---'] * 2 + ['--:'] * (len(head) - 2)
    return '\n'.join('| ' + ' | '.join(line) + ' |'
                     for line in [head, rule] + rest)


def spread(samples):
    """Every row with its least and greatest value, for those who doubt."""
    lines = [['case', 'peer', 'median', 'least', 'greatest']]
    for case, _, _ in CASES:
        for p in COLUMNS:
            v = samples.get((case, p))
            if v:
                lines.append([case, p, number(statistics.median(v)),
                              number(min(v)), number(max(v))])
    return lines
