# SPDX-License-Identifier: MIT
"""goals.py - from what was measured to tables and verdicts, for every suite.

A suite is a module (goals_core.py and its kind) with its tables. A sample is
one row of one round: (row, peer) -> [values]. Everything shown is the median
over the rounds of one run; a ratio is a ratio of medians. The kinds of goals:

  at_most      our value is at most so many times theirs
  at_least     our value is at least so many times theirs
  faster       theirs is at least so many times ours; of several the least
  below        our value is at most so much
  above        our value is at least so much
  never_above  the same in every single round
"""
import statistics

OURS = 'vow'
COUNTS = ['spans', 'starts']       # units of whole numbers
COMPARED = ['ns', 'us', 'bytes', 'MiB', 'jobs/s', 'MB/s', 'names/s']  # ratios


def programs(suite):
    """What the programs are asked for, in order. Some give several rows."""
    return list(dict.fromkeys(case for _, _, case, _ in suite.CASES))


def case_of(suite, row):
    return next(case for name, _, case, _ in suite.CASES if name == row)


def unit_of(suite, row):
    return next(unit for name, unit, _, _ in suite.CASES if name == row)


def needed(suite, chosen):
    """What the goals of the chosen cases compare with: {(case, peer)}."""
    return {(case_of(suite, theirs[1]), p)
            for _, row, _, _, _, theirs in suite.GOALS
            if theirs and case_of(suite, row) in chosen for p in theirs[0]}


def medians(samples):
    return {key: statistics.median(v) for key, v in samples.items()}


def number(v, unit):
    if unit == 's':
        return f'{v:.3f}'
    if v >= 1000:
        return f'{v:,.0f}'
    if v >= 100 or unit in COUNTS:
        return f'{v:.0f}'
    return f'{v:.1f}' if v >= 10 else f'{v:.2f}'


def times(v):
    return f'{v:.0f}x' if v >= 100 else f'{v:.1f}x'


def table(suite, mid):
    """Lines of cells: a head, then one line per row that was measured. A
    peer's cell has its value and how many times ours that is."""
    peers = [p for p in suite.COLUMNS if any(p == peer for _, peer in mid)]
    lines = [['case', 'unit'] + peers]
    for row, unit, _, _ in suite.CASES:
        ours = mid.get((row, OURS))
        line = [row, unit]
        for p in peers:
            v = mid.get((row, p))
            if v is None:
                line.append('')
            elif p == OURS or not ours or unit not in COMPARED:
                line.append(number(v, unit))
            else:
                line.append(f'{number(v, unit)} {times(v / ours)}')
        if any(line[2:]):
            lines.append(line)
    return lines


def judge(suite, samples, goal):
    """One goal: (text, True or False, or None when it was not measured)."""
    _, row, kind, limit, who, theirs = goal
    if theirs is None:
        return judge_alone(suite, samples, goal)
    text = {'at_most': f'goal <= {limit:.1f}x {who}',
            'at_least': f'goal >= {limit:.1f}x {who}',
            'faster': f'goal >= {limit:.1f}x faster than {who}'}[kind]
    mid = medians(samples)
    ours = mid.get((row, OURS))
    found = [mid[(theirs[1], p)] for p in theirs[0] if (theirs[1], p) in mid]
    if ours is None or not found:
        return f'{text}: not measured', None
    best = max(found) if kind == 'at_least' else min(found)
    if kind == 'at_most':
        return f'{text}: {ours / best:.2f}x', ours <= limit * best
    if kind == 'at_least':
        return f'{text}: {ours / best:.2f}x', ours >= limit * best
    return f'{text}: {best / ours:.2f}x', best >= limit * ours


def judge_alone(suite, samples, goal):
    """The same for a goal without a peer."""
    _, row, kind, limit, what, _ = goal
    never = kind == 'never_above'
    sign = {'never_above': 'never over', 'above': '>='}.get(kind, '<=')
    text = f'goal {sign} {limit:g} {what}'
    values = samples.get((row, OURS))
    if not values:
        return f'{text}: not measured', None
    v = max(values) if never else statistics.median(values)
    reached = v >= limit if kind == 'above' else v <= limit
    return f'{text}: {number(v, unit_of(suite, row))}', reached


def verdicts(suite, samples, chosen):
    """(work, text, verdict) for each goal of the chosen cases."""
    words = {True: 'yes', False: 'NO', None: '-'}
    lines = []
    for goal in suite.GOALS:
        if case_of(suite, goal[1]) in chosen:
            text, reached = judge(suite, samples, goal)
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


def spread(suite, samples):
    """Every row with its least and greatest value, for those who doubt."""
    lines = [['case', 'peer', 'median', 'least', 'greatest']]
    for row, unit, _, _ in suite.CASES:
        for p in suite.COLUMNS:
            v = samples.get((row, p))
            if v:
                told = [number(x, unit)
                        for x in (statistics.median(v), min(v), max(v))]
                lines.append([row, p] + told)
    return lines
