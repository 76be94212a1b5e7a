"""Spares Triton's front end what costs it a fifth of its time, while one of our kernels passes through it."""

import gc
import inspect
import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any


class _Instead:
    """A module with some of its functions replaced."""

    def __init__(self, module: ModuleType, **functions: Any) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _nothing(*_: object) -> None:
    """Already done, once for all."""


# Triton up to 3.8 silences deprecations anew at each node of the syntax tree, and looks up the signature of a built-in
# function at each call of it.
_THEIRS = {"warnings": warnings, "inspect": inspect}
_OURS = {
    "warnings": _Instead(warnings, catch_warnings=nullcontext, simplefilter=_nothing),
    "inspect": _Instead(inspect, signature=cache(inspect.signature)),
}


@contextmanager
def quick_front_end() -> Generator[None]:
    """While it is entered, Triton's code generator silences deprecations once and remembers signatures."""
    from triton.compiler import code_generator  # imported where something must be compiled

    scope = code_generator.__dict__
    names = [name for name in _THEIRS if name in scope]
    with warnings.catch_warnings() if "warnings" in names else nullcontext():
        for kind in (DeprecationWarning, PendingDeprecationWarning) if "warnings" in names else ():
            warnings.simplefilter("ignore", kind)
        scope.update({name: _OURS[name] for name in names})
        try:
            yield
        finally:
            scope.update({name: _THEIRS[name] for name in names})


@contextmanager
def without_collection() -> Generator[None]:
    """Keep Python from looking for reference cycles: a compile makes many objects, and nearly all of them stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
