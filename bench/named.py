#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""named.py - a cached result by `vow share`, in turns with `cat`.

usage: bench/named.py VOW CAT cached

Both write the same bytes, ours out of the store, cat out of a file beside it.
The time is from the start to the end of the command. Prints rows of both as
the programs in C do, see bench.h. Ends with status 1 if one did not write what
it was asked for.
"""
import os
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import cli  # noqa: E402

TIMES = 200
OTHERS = 100  # results that are kept beside it
READ = 1 << 20


def read_all(fd):
    pieces = []
    while piece := os.read(fd, READ):
        pieces.append(piece)
    return b''.join(pieces)


def piped(command):
    """What it writes, and the seconds from its start to its end."""
    begin = time.perf_counter()
    ends = os.pipe()
    pid = cli.start(command, os.devnull, ends[1])
    os.close(ends[1])
    got = read_all(ends[0])
    cli.wait(pid, command)
    spent = time.perf_counter() - begin
    os.close(ends[0])
    return got, spent


def measure(commands, what, once):
    """Rows of the medians, of each command in its turn."""
    spent = {name: [] for name in commands}
    for _ in range(TIMES):
        for name, command in commands.items():
            spent[name].append(once(command))
    for name, times in spent.items():
        cli.row(what, name, statistics.median(times) * 1e6, 'us')


def cached(vow, cat, folder):
    store = 'file:' + os.path.join(folder, 'store')
    share = [vow, 'share', '--store', store, '--ttl', '1h']
    for i in range(OTHERS):
        cli.timed(share + [f'other {i}', '--', cli.TRUE])
    for size, what in ((1000, 'cached-1k'), (1000000, 'cached-1m')):
        path = os.path.join(folder, what)
        content = os.urandom(size)
        with open(path, 'wb') as f:
            f.write(content)
        commands = {'vow': share + [what, '--', cat, path],
                    'cat': [cat, path]}
        for name in ('vow', 'vow', 'cat'):  # the first one runs it
            if piped(commands[name])[0] != content:
                sys.exit(f'named.py: {name} wrote something else')
        measure(commands, what, lambda c: cli.timed(c)[0])
    measure(commands, 'cached-pipe', lambda c: piped(c)[1])


def main():
    if len(sys.argv) != 4 or sys.argv[3] != 'cached':
        sys.exit('usage: named.py VOW CAT cached')
    with tempfile.TemporaryDirectory(prefix='vow-bench-') as folder:
        cli.ENV['HOME'] = folder  # no settings of anybody
        cli.ENV.pop('XDG_CONFIG_HOME', None)
        cached(sys.argv[1], sys.argv[2], folder)


if __name__ == '__main__':
    main()
