#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""redis.py - runs a program beside a Redis server of its own.

usage: bench/redis.py PROGRAM [ARGUMENT]...

The server keeps nothing on disk and is reached by a socket in a temporary
folder, whose path is in VOW_BENCH_REDIS. It ends with the program, whose exit
status is ours.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

START_S = 10
TOGETHER = ['setpriv', '--pdeathsig', 'KILL']  # nobody is left without us


def answers(path):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b'PING\r\n')
            return s.recv(64).startswith(b'+PONG')
    except OSError:
        return False


def start(folder, path):
    server = subprocess.Popen(
        TOGETHER + ['redis-server', '--port', '0', '--unixsocket', path,
                    '--save', '', '--appendonly', 'no', '--dir', folder],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + START_S
    while not answers(path):
        if server.poll() is not None or time.monotonic() > end:
            server.kill()
            sys.exit('redis.py: the server does not start')
        time.sleep(0.01)
    return server


def main():
    if len(sys.argv) < 2:
        sys.exit('usage: redis.py PROGRAM [ARGUMENT]...')
    if shutil.which('redis-server') is None:
        sys.exit('there is no redis-server (redis-server and redis-tools, or '
                 './dev bench --peers)')
    with tempfile.TemporaryDirectory(prefix='vow-bench-') as folder:
        path = os.path.join(folder, 'redis')
        server = start(folder, path)
        try:
            env = dict(os.environ, VOW_BENCH_REDIS=path)
            return subprocess.run(TOGETHER + sys.argv[1:], env=env).returncode
        finally:
            server.kill()
            server.wait()


if __name__ == '__main__':
    sys.exit(main())
