"""The usual calls of operators: what ``nbxtensor pack --ops NAME`` and ``--common`` cover.

A kernel depends on the dtypes, on the length of rows, and on a GPU on whether sizes are multiples of 16; so a few sizes
stand for many. Other calls are packed by writing them out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from nbxtensor.base.errors import ArgumentError
from nbxtensor.kernel.call_text import Example, call_of

F = TypeVar("F", bound=Callable[..., Any])
FLOATS = ("float32", "float16", "bfloat16")
SIZES = ("1000", "1024")
"""Flat sizes: any other is like one of them."""
LENGTHS = (10, 100, 128, 256, 512, 1000, 1024, 2048, 4096, 8192, 32000, 50257, 128256, 151936)
"""Lengths of rows of float32: classes, tokens, widths, vocabularies."""
FEWER_LENGTHS = (128, 1000, 1024, 4096, 32000)
SORTED_LENGTHS = (128, 1000, 1024, 32000)
ROWS = (1, 64, 4096)
COUNT = 10
LARGEST = 1 << 26

CONVERSIONS = (
    *(("float32", "float16"), ("float32", "bfloat16"), ("float16", "float32"), ("bfloat16", "float32")),
    *(("float32", "int64"), ("float32", "int32"), ("int64", "float32"), ("int32", "float32"), ("bool", "float32")),
    *(("int64", "int32"), ("int32", "int64"), ("uint8", "float32")),
)


def _shapes(lengths: Sequence[int]) -> list[str]:
    """Rows of these lengths, as many as a machine holds easily."""
    return [f"{rows}, {n}" for n in lengths for rows in ROWS if rows * n <= LARGEST]


def _unary(*kinds: str) -> Callable[[str], Iterable[str]]:
    return lambda name: (f"{name}({kind}[{size}])" for kind in kinds for size in SIZES)


def _binary(*kinds: str) -> Callable[[str], Iterable[str]]:
    return lambda name: (f"{name}({kind}[{size}], {kind}[{size}])" for kind in kinds for size in SIZES)


def _over_rows(lengths: Sequence[int], *others: str) -> Callable[[str], Iterable[str]]:
    """float32 on rows of these lengths; other dtypes on fewer of them."""

    def calls(name: str) -> Iterable[str]:
        for kind, several in (("float32", lengths), *((kind, FEWER_LENGTHS) for kind in others)):
            for shape in _shapes(several):
                yield f"{name}({kind}[{shape}], axis=-1)"

    return calls


def _topk(name: str) -> Iterable[str]:
    return (f"{name}(float32[{shape}], {COUNT})" for shape in _shapes(SORTED_LENGTHS))


def _conversions(name: str) -> Iterable[str]:
    return (f"{name}({a}[{size}], {b})" for a, b in CONVERSIONS for size in SIZES)


COMMON: Mapping[str, Callable[[str], Iterable[str]]] = {
    **dict.fromkeys(("sigmoid", "silu", "sin", "softplus"), _unary(*FLOATS)),
    **dict.fromkeys(("exp", "log", "sqrt", "tanh", "relu", "gelu", "abs", "negative", "square"), _unary("float32")),
    **dict.fromkeys(("add", "multiply"), _binary(*FLOATS)),
    **dict.fromkeys(("subtract", "divide", "maximum", "minimum"), _binary("float32")),
    "astype": _conversions,
    "softmax": _over_rows(LENGTHS, "float16", "bfloat16"),
    "log_softmax": _over_rows(LENGTHS),
    **dict.fromkeys(("sum", "mean", "max", "argmax"), _over_rows(FEWER_LENGTHS)),
    **dict.fromkeys(("sort", "argsort", "sort_with_indices"), _over_rows(SORTED_LENGTHS)),
    "topk": _topk,
    "cumulative_sum": _over_rows(FEWER_LENGTHS),
}
"""Operator -> its usual calls."""


def usual(name: str) -> list[Example]:
    """The usual calls of an operator.

    Raises
    ------
    ArgumentError
        Nobody has said which they are.
    """
    if name not in COMMON:
        mend = f"write the calls out, as in --op '{name}(float32[64, 1000])'"
        raise ArgumentError(
            "nbxtensor pack", "no calls of this operator are usual", got=name, allowed=COMMON, mend=mend
        )
    return [call_of(text) for text in COMMON[name](name)]


def ops_option(names: str) -> Callable[[F], F]:
    """The option by which verbs take operators and calls; `names`: what an operator that is only named stands for."""
    text = f"{names}; or calls: 'softmax(float32[64, 1000]), sum(float32[9:1, 7:9])' (steps after a colon)."
    return click.option("--op", "--ops", "ops", multiple=True, metavar="LIST", help=text)
