"""Exception types of nbxtensor and the one format of their messages.

Every message says which function refused, what it got, what is allowed and, where there is one, the mend.
Callers pass the facts; the wording is made here.
"""

from collections.abc import Iterable
from typing import Any

_LONGEST_GOT = 400


def _shown(got: object) -> str:
    """`got` in one line; the middle of a long text is left out."""
    text = " ".join(str(got).split())
    if len(text) <= _LONGEST_GOT:
        return text
    half = _LONGEST_GOT // 2
    return f"{text[:half]} ... {text[-half:]}"


def _sentence(function: str, problem: str, got: object, allowed: str, mend: str) -> str:
    parts = [f"{function}: {problem}"]
    if got is not None:
        parts.append(f"got {_shown(got)}")
    if allowed:
        parts.append(f"allowed: {allowed}")
    if mend:
        parts.append(mend)
    return "; ".join(parts)


class NbxError(Exception):
    """Base of every error that nbxtensor raises on purpose.

    Parameters
    ----------
    function
        Name of the public function that refused (``"nbx.sum"``).
    problem
        What is wrong, without a final stop.
    got
        The offending value, or None.
    allowed
        What would have been accepted.
    mend
        What to do about it.
    """

    def __init__(
        self, function: str, problem: str, *, got: object = None, allowed: str | Iterable[str] = "", mend: str = ""
    ) -> None:
        text = allowed if isinstance(allowed, str) else ", ".join(allowed)
        super().__init__(_sentence(function, problem, got, text, mend))
        self.function = function
        self.problem = problem
        self.got = got
        self.allowed = text
        self.mend = mend

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes; a `got` that is not a plain value travels as text."""
        got = self.got if isinstance(self.got, (str, int, float, type(None))) else str(self.got)
        return _again, (type(self), self.function, self.problem, got, self.allowed, self.mend)


def _again(kind: "type[NbxError]", function: str, problem: str, got: object, allowed: str, mend: str) -> "NbxError":
    return kind(function, problem, got=got, allowed=allowed, mend=mend)


class DTypeError(NbxError, TypeError):
    """A dtype is unknown, unsupported here, or two dtypes do not promote."""


class ShapeError(NbxError, ValueError):
    """Shapes do not broadcast, or a rank or size is not what the function takes."""


class AxisError(NbxError, IndexError):
    """An axis is out of range or given twice."""


class IndexingError(NbxError, IndexError):
    """An index is out of bounds or of a kind that is not supported."""


class ArgumentError(NbxError, ValueError):
    """An argument other than a shape, axis or dtype has a value that is not allowed."""


class DeviceError(NbxError, RuntimeError):
    """A device is unknown, absent, or two operands live on different devices."""


class OutOfMemoryError(NbxError, MemoryError):
    """A device had too little memory; names the operation, the bytes asked and free, the largest live tensors."""


class LaunchError(NbxError, RuntimeError):
    """A kernel launch failed; the device stays usable unless the message says otherwise."""


class CompileError(NbxError, RuntimeError):
    """A kernel could not be compiled; names the operation that is not supported and its source line."""


class CacheError(NbxError, OSError):
    """The artifact store cannot be read or written."""


class ModelError(NbxError, ValueError):
    """A model file is malformed, hostile, or uses a node that is not supported."""


class MissingDependencyError(NbxError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class CertificateError(NbxError, ValueError):
    """A table of certificates is damaged, or not one."""


class UncertifiedKeyError(NbxError, RuntimeError):
    """NBX_CERTIFIED_ONLY is set, and no certificate covers a launch."""


class NotPackedError(MissingDependencyError, ImportError):
    """A kernel is in no pack and in no cache, and the compilers that would make it are not installed."""


class PackError(NbxError, ValueError):
    """A pack cannot be read: it is missing, cut off, altered, malformed or of another format; names the file."""
