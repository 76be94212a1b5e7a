"""The operator table: array-API name -> function. The ops layer fills it; Tensor's operators and methods look it up.

``table["add"](x, y)`` where either operand may be a Python scalar. A missing name loads the ops layer once (through the
hook that the package sets), so that a tensor works whatever was imported first.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from nbxtensor.base.errors import NbxError

Operator: TypeAlias = Callable[..., Any]


class OperatorError(NbxError, NotImplementedError):
    """The operator does not exist."""


class Table(dict[str, Operator]):
    """A dict of operators that loads the ops layer when a name is missing."""

    loader: Callable[[], object] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def __missing__(self, name: str) -> Operator:
        with self._lock:  # others wait until the loading is done
            loader, self.loader = self.loader, None
            if loader is not None:
                try:
                    loader()
                except BaseException:
                    self.loader = loader
                    raise
        found = self.get(name)
        if found is not None:
            return found
        raise OperatorError(f"nbx.{name}", "there is no such operator", allowed=sorted(self))


table = Table()


def register(name: str) -> Callable[[Operator], Operator]:
    """Decorator: enter a function into the table under `name`."""

    def enter(function: Operator) -> Operator:
        table[name] = function
        return function

    return enter
