"""Processes for costly work, forked from one that has loaded everything and does nothing else.

The web process forks the nursery before it has a thread, a connection or an event loop; forking
later is not safe. The nursery keeps a number of workers and replaces one that ended. It passes the
line to each new worker to the web process, with a handle that signals this very process. All of
them end with the web process.
"""

import gc
import os
import signal
import socket
import time
from collections.abc import Callable

from portal.parent import end_with_parent

NICENESS = 5
"""Ordinary requests come first at the processor."""
HEALTHY_SECONDS = 1.0
"""A worker that ended sooner is replaced after this time only."""

Serve = Callable[[socket.socket], None]


def nursery_fork(workers: int, serve: Serve) -> socket.socket:
    """Forks the nursery; returns the line on which it passes the lines to its workers."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    # What is loaded now is never collected: the collector would copy the memory that is shared.
    gc.collect()
    gc.freeze()
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    _begin(parent)
    # A session of its own, because the kernel may share out the processor by session.
    os.setsid()
    os.nice(NICENESS)
    _nurse(theirs, workers, serve)
    os._exit(0)


def line_take(control: socket.socket) -> tuple[socket.socket, int] | None:
    """Returns the line to a new worker and the handle of its process; None: the nursery ended."""
    message, handles, *_ = socket.recv_fds(control, 1, 2)
    if not message:
        return None
    line, process = handles
    return socket.socket(fileno=line), process


def _nurse(control: socket.socket, workers: int, serve: Serve) -> None:
    alive: dict[int, float] = {}
    while True:
        while len(alive) < workers:
            alive[_worker_fork(control, serve)] = time.monotonic()
        ended, _ = os.wait()
        if time.monotonic() - alive.pop(ended) < HEALTHY_SECONDS:
            time.sleep(HEALTHY_SECONDS)


def _worker_fork(control: socket.socket, serve: Serve) -> int:
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        control.close()
        ours.close()
        _begin(parent)
        serve(theirs)
        os._exit(0)
    theirs.close()
    process = os.pidfd_open(pid)
    socket.send_fds(control, [b"w"], [ours.fileno(), process])
    ours.close()
    os.close(process)
    return pid


def _begin(parent: int) -> None:
    """Ends this process when `parent` ends, and by nothing else that stops a program in order: its
    parent answers its last requests then."""
    end_with_parent(parent, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
