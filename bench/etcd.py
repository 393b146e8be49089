#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""etcd.py - runs a program beside a member of etcd of its own.

usage: bench/etcd.py PROGRAM [ARGUMENT]...

It is a cluster of one, does not wait for its disk, and is reached by the port
of the loopback that is in VOW_BENCH_ETCD. It ends with the program, whose exit
status is ours.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

START_S = 20
TOGETHER = ['setpriv', '--pdeathsig', 'KILL']  # nobody is left without us


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def answers(port):
    try:
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/health',
                                    timeout=1) as r:
            return b'true' in r.read()
    except OSError:
        return False


def start(folder):
    port = free_port()
    here, peer = f'http://127.0.0.1:{port}', f'http://127.0.0.1:{free_port()}'
    server = subprocess.Popen(
        TOGETHER + ['etcd', '--name', 'a', '--data-dir', folder,
                    '--listen-client-urls', here,
                    '--advertise-client-urls', here,
                    '--listen-peer-urls', peer,
                    '--initial-advertise-peer-urls', peer,
                    '--initial-cluster', f'a={peer}', '--unsafe-no-fsync'],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    end = time.monotonic() + START_S
    while not answers(port):
        if server.poll() is not None or time.monotonic() > end:
            server.kill()
            sys.exit('etcd.py: the server does not start')
        time.sleep(0.02)
    return server, port


def main():
    if len(sys.argv) < 2:
        sys.exit('usage: etcd.py PROGRAM [ARGUMENT]...')
    if shutil.which('etcd') is None:
        sys.exit('there is no etcd (etcd-server, or ./dev bench)')
    with tempfile.TemporaryDirectory(prefix='vow-bench-') as folder:
        server, port = start(folder)
        try:
            env = dict(os.environ, VOW_BENCH_ETCD=str(port))
            return subprocess.run(TOGETHER + sys.argv[1:], env=env).returncode
        finally:
            server.kill()
            server.wait()


if __name__ == '__main__':
    sys.exit(main())
