"""The usual calls of operators: what ``nbxtensor pack --ops NAME`` and ``--common`` cover.

A kernel depends on the dtypes, on the length of rows, and on a GPU on whether sizes are multiples of 16; so a few sizes
stand for many. An operator that is not in the tables is packed at the sizes of its declared samples.
"""

from collections.abc import Callable, Mapping

FLOATS = ("float32", "float16", "bfloat16")
SIZES = ("1000", "1024")
"""Flat sizes: any other is alike one of them."""
LENGTHS = (10, 100, 128, 200, 256, 384, 512, 768, 1000, 1024, 2048, 4096, 8192, 30522, 32000, 50257, 128256, 151936)
"""Lengths of rows: classes, tokens, widths, vocabularies."""
ROWS = (1, 64, 4096)
SORTED = (100, 128, 1000, 1024, 4096, 32000, 151936)
COUNTS = (1, 5, 10, 50)

UNARY = (
    "sigmoid",
    "silu",
    "sin",
    "softplus",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "relu",
    "gelu",
    "abs",
    "negative",
    "square",
)
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
SUMS = ("sum", "mean", "max", "argmax")
SORTS = ("sort", "argsort", "sort_with_indices")


def _unary(name: str) -> list[str]:
    return [f"{name}({dtype}[{size}])" for dtype in FLOATS for size in SIZES]


def _binary(name: str) -> list[str]:
    return [
        f"{name}({dtype}[{size}], {other})"
        for dtype in FLOATS
        for size in SIZES
        for other in (f"{dtype}[{size}]", "2.0")
    ]


def _shapes(lengths: tuple[int, ...]) -> list[str]:
    """Rows of these lengths, as many as a machine holds easily."""
    return [f"{rows}, {n}" for n in lengths for rows in ROWS if rows * n <= 1 << 26]


def _over_rows(name: str) -> list[str]:
    return [f"{name}({dtype}[{shape}], axis=-1)" for dtype in FLOATS for shape in _shapes(LENGTHS)]


def _sums(name: str) -> list[str]:
    return [f"{name}(float32[{shape}], axis=-1)" for shape in _shapes(LENGTHS)]


def _sorts(name: str) -> list[str]:
    ways = ("False", "True")
    return [f"{name}(float32[{shape}], axis=-1, descending={way})" for shape in _shapes(SORTED) for way in ways]


def _topk(name: str) -> list[str]:
    return [f"{name}(float32[{shape}], {k})" for shape in _shapes(SORTED) for k in COUNTS]


def _scans(name: str) -> list[str]:
    return [f"{name}({dtype}[{shape}], axis=-1)" for dtype in ("float32", "int64") for shape in _shapes(SORTED)]


def _conversions(name: str) -> list[str]:
    kinds = (*FLOATS, "int32", "int64", "bool")
    return [f"{name}({a}[{size}], {b})" for a in kinds for b in kinds if a != b for size in SIZES]


COMMON: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(("softmax", "log_softmax"), _over_rows),
    **dict.fromkeys(SUMS, _sums),
    **dict.fromkeys(SORTS, _sorts),
    "topk": _topk,
    "cumulative_sum": _scans,
    "astype": _conversions,
}
"""Operator -> its usual calls."""


def usual(name: str) -> list[str]:
    """The usual calls of an operator; none if nobody has said which they are."""
    return COMMON[name](name) if name in COMMON else []
