"""Locks of a module that outlive a fork."""

import os
import threading
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any


class ForkLock:
    """A lock that may be taken again by who holds it, and that is free in a forked child.

    A thread of the parent may hold it when another one forks; in the child nothing would ever release it.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock: AbstractContextManager[object] = threading.RLock()

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._lock.__exit__(None, None, None)


def renew_cached(*classes: type) -> None:
    """Have the locks of these classes' cached properties free in a forked child: Python 3.11 has one for each."""
    every: list[Any] = [v for c in classes for v in vars(c).values() if isinstance(v, cached_property)]
    found = [one for one in every if hasattr(one, "lock")]

    def renew() -> None:
        for one in found:
            one.lock = threading.RLock()

    if found:
        os.register_at_fork(after_in_child=renew)
