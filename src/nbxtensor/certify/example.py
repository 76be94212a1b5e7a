"""Example calls: an operator, its operands without their values, its attributes."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import CertificateError
from nbxtensor.base.shapes import contiguous_strides, extent
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.declare import operators
from nbxtensor.kernel.public_call import operand_text
from nbxtensor.program.names import function
from nbxtensor.tensor.tensor import Tensor
from nbxtensor.tuning.choose import Use, observed
from nbxtensor.tuning.key import LaunchKey

WITHOUT_TENSORS = frozenset(("arange", "full", "zeros", "ones"))
"""Operators that must be told the device."""

_SPEC = re.compile(r"(?P<sizes>scalar|\d+(x\d+)*)(@(?P<strides>-?\d+(x-?\d+)*))?(:(?P<dtype>\w+))?$")


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor without its values; strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def span(self) -> tuple[int, int]:
        """First element and one past the last, from the first element's address."""
        return extent(self.shape, self.strides) if self.size else (0, 0)

    def __str__(self) -> str:
        return operand_text(self.shape, self.strides, self.dtype)


def parse_spec(text: str, default: DType) -> Spec | None:
    """The tensor that a text describes (`Spec` as text, without a dtype: `default`); None if it describes none."""
    match = _SPEC.match(text)
    if not match:
        return None
    sizes = match["sizes"]
    shape = () if sizes == "scalar" else tuple(int(n) for n in sizes.split("x"))
    strides = contiguous_strides(shape)
    if match["strides"]:
        strides = tuple(int(n) for n in match["strides"].split("x"))
    dtype = dtypes.dtype(match["dtype"], "nbxtensor certify") if match["dtype"] else default
    return Spec(shape, strides, dtype) if len(strides) == len(shape) else None


def plain(shape: tuple[int, ...], dtype: DType) -> Spec:
    """A contiguous tensor."""
    return Spec(shape, contiguous_strides(shape), dtype)


@dataclass(frozen=True, slots=True)
class Example:
    """A call of a public operator.

    Attributes
    ----------
    operands
        Positional arguments: `Spec`, a tuple of them, or a value.
    """

    operator: str
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def specs(self) -> list[Spec]:
        """The tensors, those in packs included."""
        return [s for o in self.operands for s in _specs(o)]

    def map(self, change: Callable[[Spec], Any]) -> list[Any]:
        """The operands with every tensor changed; packs become lists."""
        return [_mapped(o, change) for o in self.operands]

    def with_specs(self, change: Callable[[Spec], Spec]) -> "Example":
        """The same call of other tensors."""
        changed = (tuple(cast("list[Any]", o)) if isinstance(o, list) else o for o in self.map(change))
        return replace(self, operands=tuple(changed))

    def call(self, operands: list[Any], device: Device, **more: Any) -> Any:
        """Call the operator with these operands."""
        attributes = dict(self.attributes) | more
        for key, value in attributes.items():
            if isinstance(value, Spec):  # the memory of a result
                attributes[key] = place(value, device)
        if self.operator in WITHOUT_TENSORS:
            attributes["device"] = device
        return function(self.operator)(*operands, **attributes)

    def encode(self) -> list[Any]:
        """The call as JSON values, for certificates."""
        return [self.operator, [_encoded(o) for o in self.operands], {n: _encoded(v) for n, v in self.attributes}]

    def __str__(self) -> str:
        def shown(operand: Any) -> str:
            if isinstance(operand, tuple):
                return f"({', '.join(map(shown, cast('tuple[Any, ...]', operand)))})"
            return str(operand)

        parts = [shown(o) for o in self.operands] + [f"{n}={v}" for n, v in self.attributes]
        return f"{self.operator}({', '.join(parts)})"


def decode(call: Any) -> Example:
    """The example that `Example.encode` gave.

    Raises
    ------
    CertificateError
        It did not.
    """
    try:
        operator, operands, attributes = call
        named = tuple((str(n), _decoded(v)) for n, v in sorted(attributes.items()))
        return Example(str(operator), tuple(_decoded(o) for o in operands), named)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise CertificateError("read certificates", "a call in a certificate is not one", got=call) from error


def _encoded(value: Any) -> Any:
    """A text stands for a tensor, so that other texts and dtypes are wrapped."""
    if isinstance(value, Spec):
        return str(value)
    if isinstance(value, (str, DType)):
        return {"dtype" if isinstance(value, DType) else "text": str(value)}
    if isinstance(value, tuple):
        return [_encoded(v) for v in cast("tuple[Any, ...]", value)]
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        spec = parse_spec(value, dtypes.float32)
        if spec is None:
            raise ValueError(value)
        return spec
    if isinstance(value, dict):
        ((kind, text),) = cast("dict[str, str]", value).items()
        return dtypes.dtype(text) if kind == "dtype" else text
    if isinstance(value, list):
        return tuple(_decoded(v) for v in cast("list[Any]", value))
    return value


def _specs(operand: Any) -> Iterator[Spec]:
    if isinstance(operand, Spec):
        yield operand
    elif isinstance(operand, tuple):
        for part in cast("tuple[Any, ...]", operand):
            yield from _specs(part)


def _mapped(operand: Any, change: Callable[[Spec], Any]) -> Any:
    if isinstance(operand, Spec):
        return change(operand)
    if isinstance(operand, tuple) and any(True for _ in _specs(operand)):
        return [_mapped(part, change) for part in cast("tuple[Any, ...]", operand)]
    return cast(object, operand)


def place(spec: Spec, device: Device, shift: int = 0) -> Tensor:
    """An uninitialised tensor; `shift` elements lie before it in its memory."""
    low, high = spec.span
    buffer = device.allocate((high - low + shift) * spec.dtype.itemsize)
    return Tensor(buffer, spec.shape, spec.strides, shift - low, spec.dtype, device)


def keys_of(example: Example, profile: Profile, device: Device) -> dict[LaunchKey, Use]:
    """The launch keys of a call, without running it: `device` and `profile` say where it would run."""
    null = NullDevice(device.target, profile)  # a fresh one: forms are new, and so are plans
    operands = example.map(lambda spec: place(spec, null))
    with observed() as seen:
        example.call(operands, null)
    return seen


def takes_out(example: Example) -> bool:
    """Whether the call may write into its first operand."""
    op = operators.get(example.operator)
    return op is not None and "out" in signature(op.function)


def signature(run: Callable[..., Any]) -> Mapping[str, Any]:
    """Parameters of a function by name."""
    import inspect  # not free, and only asked for here

    return inspect.signature(run).parameters
