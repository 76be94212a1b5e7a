"""Tables and sizes as people read them: drawn with rich on a terminal, plain columns elsewhere."""

import importlib.util
import sys
from collections.abc import Sequence

import click

STYLES = {"ok": "green", "certified": "green", "warning": "yellow", "uncertified": "yellow", "stale": "yellow"}
WRONG = "bold red"


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


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text under their columns; a column called ``status`` is coloured."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _draw(title, columns, rows)
    else:
        _print_plain(title, columns, rows)


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cells = [list(columns), *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    click.echo(f"{title}:")
    for row in cells:
        click.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    click.echo()


def _draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # drawn only where someone sees it
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == "status")
    for row in rows:
        table.add_row(
            *(
                Text(cell, STYLES.get(cell, WRONG) if name == "status" else "")
                for name, cell in zip(columns, row, strict=True)
            )
        )
    Console().print(table)
