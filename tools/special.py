"""Writes docs/special-values.md: what the operators give for special values, from the data that they declare.

`make special` runs it; `tests/test_special.py` and `tests/test_elementwise.py` run the same data on every device.
"""

from pathlib import Path
from typing import Any

from nbxtensor.kernel.declare import Operator, operators
from nbxtensor.tensor.dispatch import table

DOCUMENT = Path(__file__).parents[1] / "docs" / "special-values.md"

HEAD = """# Special values

What operators give for NaN, infinities, signed zeros, subnormals and the ends of their ranges, in float32. The page is
written by `tools/special.py` from the `special` data that each operator declares beside its function; the tests run the
same data on every device. Values are rounded to 9 digits. Arithmetic promises a NaN, not its sign or payload; copies
and sorts keep them.
"""


def number(value: float) -> str:
    """A value as the page shows it."""
    return f"{value:.9g}"


def shown(value: Any) -> str:
    """A value, or a row of values in brackets."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(shown, value)) + "]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return number(value)


def section(op: Operator) -> list[str]:
    """The table of one operator."""
    lines = [f"## {op.name}", "", "| of | gives |", "|---|---|"]
    lines += [f"| {shown(given)} | {shown(result)} |" for given, result in op.special]
    return [*lines, ""]


def page() -> str:
    """The whole document."""
    table["exp"]  # loads every operator
    lines = [HEAD]
    for op in sorted(operators.values(), key=lambda op: op.name):
        if op.special:
            lines += section(op)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(page())
