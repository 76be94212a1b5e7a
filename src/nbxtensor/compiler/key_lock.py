"""Locks by key between processes, in one file that never has to be cleaned up.

Each key locks one byte of the file (an open file description lock of Linux). The kernel drops the lock with the process
that holds it, so a kill cannot leave one behind.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

_FIRST_WAIT = 0.002
_LONGEST_WAIT = 0.1
_BUSY = (errno.EAGAIN, errno.EACCES)


class Lock(Enum):
    """What became of asking for a lock."""

    HELD = "held"
    BUSY = "another process holds it"
    ABSENT = "there are no such locks here"


def _flock(kind: int, offset: int) -> bytes:
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, offset, 1, 0)


def _acquire(fd: int, offset: int, patience: float) -> Lock:
    deadline = time.monotonic() + patience
    wait = _FIRST_WAIT
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, offset))
        except OSError as error:
            if error.errno not in _BUSY:
                return Lock.ABSENT
            if time.monotonic() >= deadline:
                return Lock.BUSY
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        else:
            return Lock.HELD


@contextmanager
def key_lock(path: Path, key: str, patience: float, shared: bool = False) -> Generator[Lock]:
    """Hold the lock of `key` (hex) in the file `path`, waiting for it up to `patience` seconds.

    Parameters
    ----------
    shared
        Who may write to the folder may lock, too, if the file is made here; else only its owner.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if shared:
            with contextlib.suppress(OSError):  # of somebody else, who has done it
                os.fchmod(fd, 0o600 | (stat.S_IMODE(path.parent.stat().st_mode) & 0o022) * 3)
    except OSError:
        yield Lock.ABSENT
        return
    try:
        offset = int(key[:15], 16)
        lock = _acquire(fd, offset, patience)
        try:
            yield lock
        finally:
            if lock is Lock.HELD:
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, offset))
    finally:
        os.close(fd)
