"""The parsed form of a model file: plain data, checked, without protobuf."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ModelError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Dim = int | str | None


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model.

    Attributes
    ----------
    shape
        One entry per dimension: a size, the name of a size that comes with the inputs, or None; None if even the
        rank is unknown.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        dims = "unknown rank" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype.name} [{dims}]"


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Stands for a graph in an attribute (``If``, ``Loop``, ``Scan``)."""


Attribute: TypeAlias = "int | float | str | Array | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Subgraph"


@dataclass(frozen=True, slots=True)
class Node:
    """One node: an operator, its inputs and outputs by name (``""``: left out), its attributes."""

    op: str
    domain: str
    name: str
    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])

    def __str__(self) -> str:
        return f"{self.op} node {self.name!r}" if self.name else f"{self.op} node number {self.index}"

    def int(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else self._mistyped(name, "an integer")

    def float(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        return float(value) if isinstance(value, (int, float)) else self._mistyped(name, "a float")

    def string(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default)
        return value if isinstance(value, str) else self._mistyped(name, "a string")

    def ints(self, name: str) -> "tuple[int, ...] | None":
        value = self.attributes.get(name)
        if value is None:
            return None
        if isinstance(value, tuple):
            integers = tuple(v for v in value if isinstance(v, int))
            if len(integers) == len(value):
                return integers
        return self._mistyped(name, "a list of integers")

    def _mistyped(self, name: str, wanted: str) -> Any:
        raise ModelError("onnx", f"{self}: attribute {name} is not {wanted}")


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole model: nodes in an order in which every value is made before it is read."""

    opset: int
    producer: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
