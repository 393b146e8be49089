#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cli.py - measures one tool that runs commands, at one case.

usage: bench/cli.py [--jobs N] TOOL PROGRAM CASE

TOOL is vow, xargs, parallel, c-vfork (the loop of spawn_floor.c) or cat, and
PROGRAM where it is. Prints rows as the programs in C do, see bench.h. All are
started alike and their ends are told by the kernel: the time from the start to
the end of the tool, the processor time of it and of all that it has waited for.
Ends with status 1 if a tool did not do what it was asked for.
"""
import os
import signal
import statistics
import sys
import tempfile
import time

TRUE = '/bin/true'
JOBS = 20000
OF_PARALLEL = 10      # times fewer jobs and repetitions for it
STARTS = 500
QUEUED = 1000000
QUEUE_S = 3           # so long until the memory is looked at
GROUPS = 8
GROUP_BYTES = 200 * 10 ** 6
READ = 1 << 18

# Not what a make or a vow around us says. And `true` reads the files of its
# locale when it has an argument, which would be a quarter of the work.
ENV = {k: v for k, v in os.environ.items()
       if k != 'MAKEFLAGS' and not k.startswith('VOW_')}
ENV['LC_ALL'] = 'C'


def stop(text):
    sys.exit('cli.py: ' + text)


def row(what, tool, value, unit):
    print(f'{what}\t{tool}\t{value:.6g}\t{unit}', flush=True)


# ---- starting and ending ----------------------------------------------------

def start(command, stdin, stdout=None):
    """stdin: a path or a descriptor; stdout: a descriptor, or nowhere."""
    if isinstance(stdin, int):
        first = (os.POSIX_SPAWN_DUP2, stdin, 0)
    else:
        first = (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0)
    second = ((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
              if stdout is None else (os.POSIX_SPAWN_DUP2, stdout, 1))
    # Python ignores them, and who is started would inherit that.
    return os.posix_spawn(command[0], command, ENV,
                          file_actions=[first, second],
                          setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])


def wait(pid, command):
    """The seconds of processor time that it took."""
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        code = os.waitstatus_to_exitcode(status)
        stop(f'{" ".join(command[:6])}: ended with {code}')
    return used.ru_utime + used.ru_stime


def timed(command, stdin=os.devnull):
    """Seconds from its start to its end, and of processor time."""
    begin = time.perf_counter()
    cpu = wait(start(command, stdin), command)
    return time.perf_counter() - begin, cpu


def file_of(folder, text):
    path = os.path.join(folder, 'input')
    with open(path, 'w', encoding='ascii') as f:
        f.write(text)
    return path


def numbers(n):
    return ''.join(f'{i}\n' for i in range(1, n + 1))


# ---- the cases --------------------------------------------------------------

def of_lines(tool, program, at_once, job):
    """The command that runs the job for each line of its input."""
    return {'vow': [program, 'map', f'-j{at_once}'] + job,
            'xargs': [program, '-n1', f'-P{at_once}'] + job,
            'parallel': [program, '--will-cite', f'-j{at_once}'] + job}[tool]


def measure_true(tool, program, folder, name, at_once, jobs):
    if tool == 'c-vfork':
        command, lines = [program, str(at_once), str(jobs), TRUE], os.devnull
    else:
        command = of_lines(tool, program, at_once, [TRUE])
        lines = file_of(folder, numbers(jobs))
    wall, cpu = timed(command, lines)
    row(name, tool, jobs / wall, 'jobs/s')
    row(name + '-cpu', tool, cpu / jobs * 1e6, 'us')


def measure_start(tool, program, folder, times):
    command, lines = {
        'vow': ([program, 'map', 'true', ':::', 'x'], os.devnull),
        'xargs': ([program, 'true'], file_of(folder, 'x\n')),
        'parallel': ([program, '--will-cite', 'true', ':::', 'x'], os.devnull),
        'c-vfork': ([program, '1', '1', TRUE], os.devnull)}[tool]
    timed(command, lines)  # warm
    runs = [timed(command, lines) for _ in range(times)]
    row('start', tool, statistics.median(w for w, _ in runs) * 1e6, 'us')
    row('start-cpu', tool, sum(c for _, c in runs) / times * 1e6, 'us')


def measure_queue(tool, program):
    """Lines come by a pipe and are never at their end."""
    ends = os.pipe()
    lines = start(['/usr/bin/seq', str(QUEUED)], os.devnull, ends[1])
    pid = start(of_lines(tool, program, 2, [TRUE]), ends[0])
    for end in ends:
        os.close(end)
    time.sleep(QUEUE_S / 2)
    before = helpers(pid)
    time.sleep(QUEUE_S / 2)
    if os.waitpid(pid, os.WNOHANG) != (0, 0):
        stop(f'{tool} has ended before its input')
    peak = kib(f'/proc/{pid}/status', 'VmHWM:')
    for helper in before & helpers(pid):
        # What it does not share with the tool.
        peak += kib(f'/proc/{helper}/smaps_rollup', 'Private_')
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.waitpid(lines, 0)
    row('queue-peak', tool, peak / 1024, 'MiB')


def helpers(pid):
    """Children that run the same program: helpers, and jobs not yet born."""
    def program(p):
        try:
            return os.readlink(f'/proc/{p}/exe')
        except OSError:
            return None  # it has ended
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as f:
        return {p for p in f.read().split() if program(p) == program(pid)}


def kib(path, field):
    """The sum of the fields that begin so."""
    with open(path, encoding='utf-8') as f:
        return sum(int(line.split()[1]) for line in f
                   if line.startswith(field))


def measure_group(tool, program, folder, name, at_once):
    # No part of the file is like another, so that mixed output is seen.
    block = os.urandom(1000003)
    path = os.path.join(folder, 'output')
    with open(path, 'wb') as f:
        for at in range(0, GROUP_BYTES, len(block)):
            f.write(block[:GROUP_BYTES - at])
    files = [path] * GROUPS
    if tool == 'cat':
        command = [program] + files
    else:
        command = of_lines(tool, program, at_once, ['cat']) + [':::'] + files
    begin = time.perf_counter()
    ends = os.pipe()
    pid = start(command, os.devnull, ends[1])
    os.close(ends[1])
    got = drain(ends[0], block)
    cpu = wait(pid, command)
    wall = time.perf_counter() - begin
    if got != GROUPS * GROUP_BYTES:
        stop(f'{tool} gave {got} bytes')
    row(name, tool, got / wall / 1e6, 'MB/s')
    row(name + '-cpu', tool, cpu / got * 1e12, 'us')


def drain(fd, block):
    """Reads all of it and looks at the first byte of each piece."""
    buffer, got = bytearray(READ), 0
    while (n := os.readv(fd, [buffer])) > 0:
        if buffer[0] != block[got % GROUP_BYTES % len(block)]:
            stop(f'other output than asked for, at byte {got}')
        got += n
    return got


def main():
    args = sys.argv[1:]
    jobs = JOBS
    if args[:1] == ['--jobs'] and len(args) == 5:
        jobs, args = int(args[1]), args[2:]
    if len(args) != 3:
        stop('usage: cli.py [--jobs N] TOOL PROGRAM CASE')
    tool, program, case = args
    fewer = OF_PARALLEL if tool == 'parallel' else 1
    with tempfile.TemporaryDirectory(prefix='vow-bench-') as folder:
        if case in ('true-j2', 'true-j16'):
            measure_true(tool, program, folder, case, int(case[6:]),
                         jobs // fewer)
        elif case == 'start':
            measure_start(tool, program, folder, STARTS // fewer)
        elif case == 'queue':
            measure_queue(tool, program)
        elif case in ('group-j2', 'group-j8'):
            measure_group(tool, program, folder, case, int(case[7:]))
        else:
            stop(f'there is no case {case}')


if __name__ == '__main__':
    main()
