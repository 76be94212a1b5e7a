"""Node handlers by operator and version, and what a handler works with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ModelError
from nbxtensor.onnx.graph import Array, Node
from nbxtensor.program import Tracer, Value
from nbxtensor.tensor.names import is_known

Inputs = Sequence[Value | None]
Results = Value | Sequence[Value | None]
Function = Callable[["Context", Node, Inputs], Results]
LATEST = 10_000


class ContentNeededError(Exception):
    """A node needs the content of a value that is known only when the model runs."""

    def __init__(self, roots: frozenset[str], what: str) -> None:
        super().__init__(what)
        self.roots = roots
        self.what = what


class Context:
    """What handlers emit calls through.

    Attributes
    ----------
    opset
        Version of the standard operators that the model states.
    call
        Emit one call of an operator with one result.
    """

    def __init__(self, tracer: Tracer, opset: int) -> None:
        self.tracer = tracer
        self.opset = opset
        self.call = tracer.call

    def array(self, value: Value, what: str) -> Array:
        """The content of `value`, which must be known before anything runs."""
        if value.array is None:
            raise ContentNeededError(value.roots, what)
        return value.array

    def ints(self, value: Value, what: str) -> list[int]:
        """The content of a 1-D (or 0-d) integer value."""
        array = self.array(value, what)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise ModelError("onnx", f"{what} must be a list of integers", got=f"{array.dtype} of rank {array.ndim}")
        return [int(v) for v in array.reshape(-1)]

    def optional_ints(self, inputs: Inputs, position: int, what: str) -> list[int] | None:
        """As `ints` for an input that may be left out."""
        value = get(inputs, position)
        return None if value is None else self.ints(value, what)

    def known(self, content: Any, dtype: DType) -> Value:
        """A constant made by a handler."""
        return self.tracer.constant(np.asarray(content, dtype.numpy))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.call("astype", x, dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.shape == tuple(shape) else self.call("reshape", x, tuple(shape))

    def permute(self, x: Value, axes: Sequence[int]) -> Value:
        return x if tuple(axes) == tuple(range(x.ndim)) else self.call("permute_dims", x, tuple(axes))

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.shape == tuple(shape) else self.call("broadcast_to", x, tuple(shape))

    def take_slices(self, x: Value, slices: Sequence[tuple[int | None, int | None, int]]) -> Value:
        """A view by (start, stop, step) along the leading axes; None where an end is open."""
        full = all(slice(*s).indices(n) == (0, n, 1) for s, n in zip(slices, x.shape, strict=False))
        return x if full else self.call("slice_view", x, tuple(slices))

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.call("concat", list(parts), axis=axis)


def get(inputs: Inputs, position: int) -> Value | None:
    """An input that may be left out."""
    return inputs[position] if position < len(inputs) else None


def need(inputs: Inputs, position: int) -> Value:
    """An input that must be there."""
    value = get(inputs, position)
    if value is None:
        raise ModelError("onnx", f"input number {position} is missing")
    return value


@dataclass(frozen=True, slots=True)
class Handler:
    """How nodes of one operator, in a range of versions, become calls.

    Attributes
    ----------
    since, until
        First and last version of the standard operators that it is right for.
    uses
        Operators that it always calls: the node is supported only where they exist.
    """

    op: str
    since: int
    until: int
    uses: tuple[str, ...]
    function: Function


_handlers: dict[str, list[Handler]] = {}


def register(op: str, function: Function, since: int, until: int, uses: tuple[str, ...]) -> None:
    """Enter a handler; ranges of one operator must not overlap."""
    entries = _handlers.setdefault(op, [])
    if any(since <= h.until and h.since <= until for h in entries):
        raise ValueError(f"two handlers for {op} overlap")
    entries.append(Handler(op, since, until, uses, function))


def handles(
    op: str, since: int = 1, until: int = LATEST, *, uses: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Decorator: the function handles `op` in versions `since` to `until`."""

    def enter(function: Function) -> Function:
        register(op, function, since, until, tuple(uses))
        return function

    return enter


def find(op: str, opset: int) -> Handler | None:
    """The handler of a standard operator in one version."""
    for handler in _handlers.get(op, ()):
        if handler.since <= opset <= handler.until:
            return handler
    return None


def registered() -> list[Handler]:
    """Every handler, by name and version."""
    return sorted((h for entries in _handlers.values() for h in entries), key=lambda h: (h.op, h.since))


def supported() -> list[Handler]:
    """Every handler whose operators exist, by name and version."""
    return [h for h in registered() if all(map(is_known, h.uses))]


def missing(node: Node, opset: int) -> str:
    """Why `node` is not supported; empty if it is."""
    if node.domain:
        return f"operators of domain {node.domain!r} are not supported"
    handler = find(node.op, opset)
    if handler is None:
        known = node.op in _handlers
        return f"{node.op} is not supported{f' in opset {opset}' if known else ''}"
    absent = [name for name in handler.uses if not is_known(name)]
    return f"{node.op} needs operators that are not there: {', '.join(absent)}" if absent else ""
