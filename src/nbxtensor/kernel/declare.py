"""Operator declarations: what an operator promises, beside the function that users call.

An operator's file ends with its public function under `operator`, which enters it into the table that the tensor's
own operators, the ONNX front end and the tests read.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from nbxtensor.compiler.source import KernelFunction
from nbxtensor.tensor.dispatch import table

P = ParamSpec("P")
R = TypeVar("R")

Guarantee = Literal["universal", "device"]
Reference = Callable[..., Any]
Samples = Callable[[np.random.Generator], Iterable[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Attributes
    ----------
    name
        Key in the dispatch table.
    function
        The public function.
    guarantee
        ``universal``: the same bits on every device; ``device``: the same bits on one architecture.
    kernels
        Kernels and mathematics of this operator, for the scan for forbidden operations.
    reference
        The same function in NumPy, in float64 where the operator computes floats.
    samples
        Argument tuples (NumPy arrays and Python values) on which tests compare with the reference.
    special
        Pairs (input, expected) of special values, run on every device: floats for functions of one operand, tuples
        of floats otherwise.
    ulp
        Largest error against the reference in units in the last place of the result, per dtype name; an absent
        dtype promises exactness.
    """

    name: str
    function: Callable[..., Any]
    guarantee: Guarantee
    kernels: tuple[KernelFunction, ...]
    reference: Reference | None
    samples: Samples | None
    special: tuple[tuple[Any, Any], ...] = ()
    ulp: dict[str, float] = field(default_factory=dict[str, float])


operators: dict[str, Operator] = {}


def operator(
    name: str,
    *,
    guarantee: Guarantee = "universal",
    kernels: tuple[KernelFunction, ...] = (),
    reference: Reference | None = None,
    samples: Samples | None = None,
    special: tuple[tuple[Any, Any], ...] = (),
    ulp: dict[str, float] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter the decorated public function into the operator table under `name`; see `Operator`."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        if name in operators:
            raise ValueError(f"operator {name} is declared twice")
        operators[name] = Operator(name, function, guarantee, kernels, reference, samples, special, ulp or {})
        table[name] = function
        return function

    return enter
