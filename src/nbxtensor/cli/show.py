"""Tables, sizes and facts as people read them: drawn with rich on a terminal, plain columns elsewhere."""

import importlib.util
import sys
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from nbxtensor.device.artifact import Artifact

GOOD, DOUBTFUL, WRONG = "green", "yellow", "bold red"
STYLES = {
    **dict.fromkeys(("ok", "certified", "proved"), GOOD),
    **dict.fromkeys(("warning", "uncertified", "stale", "skipped"), DOUBTFUL),
}
STATES = ("status", "verdict")
"""Columns whose cells are coloured by what they say."""


def size(nbytes: float) -> str:
    """Bytes with a unit: ``3.3 KiB``."""
    if nbytes < 1024:
        return f"{nbytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        nbytes /= 1024
        if nbytes < 1024:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:.1f} TiB"


def bandwidth(bytes_per_second: float) -> str:
    """Bytes per second with a unit; 0 is unknown."""
    return f"{bytes_per_second / 1e9:.0f} GB/s" if bytes_per_second else "unknown"


def artifact_facts(artifact: Artifact) -> dict[str, Any]:
    """What a compiled kernel was made for and what it needs, as JSON values."""
    return {
        "signature": list(artifact.signature),
        "constants": dict(artifact.constants),
        "num_warps": artifact.options.num_warps,
        "registers": artifact.resources.registers,
        "stack_bytes": artifact.resources.stack_bytes,
        "shared_bytes": artifact.resources.shared_bytes,
    }


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print rows of text under their columns; columns in `STATES` are coloured.

    Parameters
    ----------
    title
        "": the table has none, and stands beside the lines around it.
    right
        Columns of numbers, which are aligned at the right.
    """
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _draw(title, columns, rows, right)
    else:
        _print_plain(title, columns, rows, right)


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> None:
    cells = [list(columns), *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    indent = "  " if title else ""
    if title:
        click.echo(f"{title}:")
    for row in cells:
        aligned = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        )
        click.echo(indent + "  ".join(aligned).rstrip())
    if title:
        click.echo()


def _draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str]) -> None:
    from rich.console import Console  # drawn only where someone sees it
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name in columns:
        justify = "right" if name in right else "left"
        table.add_column(name, overflow="fold", no_wrap=name in STATES, justify=justify)
    for row in rows:
        styles = (STYLES.get(cell, WRONG) if name in STATES else "" for name, cell in zip(columns, row, strict=True))
        table.add_row(*map(Text, row, styles))
    Console().print(table)


@contextmanager
def progress_bar(text: str, total: int | None) -> Generator[tuple[Callable[..., None], Callable[[str], None]]]:
    """A bar on standard error, seen once its total is known and gone in the end.

    Gives two functions: one updates it (`description`, `completed`, `advance`, `total`), one prints a line above.
    """
    from rich.console import Console  # drawn only where someone sees it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total, visible=total is not None)

        def update(**changes: Any) -> None:
            bar.update(task, visible=True, **changes)

        def line(content: str) -> None:
            bar.console.print(content, highlight=False, markup=False)

        yield update, line
