"""``nbxtensor cache``: what the kernel cache holds, and how to empty it."""

import json
import time
from typing import Any

import click

from nbxtensor.base.text import counted
from nbxtensor.cli.show import artifact_facts, print_table, size
from nbxtensor.compiler.store import ArtifactStore, Entry, default_store
from nbxtensor.device.artifact import Artifact

_KEY_DIGITS = 12


@click.group(short_help="Look at the kernel cache, or empty it.")
def command() -> None:
    """Look at the cache of compiled kernels, or empty it.

    NBX_CACHE_DIR says where it is, NBX_CACHE_BYTES how large it may grow.

    \b
    Examples:
      nbxtensor cache ls
      NBX_CACHE_DIR=/var/cache/nbx nbxtensor cache clear
    """


def _row(entry: Entry, artifact: Artifact | None) -> dict[str, Any]:
    row: dict[str, Any] = {"key": entry.path.stem, "bytes": entry.nbytes, "used": entry.used}
    if artifact is None:
        return {**row, "damaged": True}
    return {
        **row,
        "kernel": artifact.symbol,
        "target": str(artifact.target),
        **artifact_facts(artifact),
        "compiler": artifact.compiler,
    }


def _table(store: ArtifactStore, rows: list[dict[str, Any]]) -> None:
    cells: list[tuple[str, ...]] = []
    for row in rows:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["used"]))
        facts = ("(damaged)", "", "", "") if row.get("damaged") else None
        kernel, target, registers, stack = facts or (
            row["kernel"],
            row["target"],
            str(row["registers"] or ""),
            str(row["stack_bytes"]),
        )
        cells.append((row["key"][:_KEY_DIGITS], kernel, target, size(row["bytes"]), registers, stack, used))
    if rows:
        columns = ("key", "kernel", "target", "size", "registers", "stack", "last used")
        print_table("", columns, cells, right=("size", "registers", "stack"))
    total = sum(row["bytes"] for row in rows)
    click.echo(f"{counted(len(rows), 'kernel')}, {size(total)} of {size(store.limit)} in {store.root}")


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print everything that is known, as JSON.")
def list_entries(as_json: bool) -> None:
    """List the compiled kernels, the most recently used first.

    \b
    Examples:
      nbxtensor cache ls
      nbxtensor cache ls --json | jq '.entries[] | select(.stack_bytes > 0) | .kernel'
    """
    store = default_store()
    rows = [_row(entry, store.read(entry)) for entry in store.entries()]
    if as_json:
        place = None if store.root is None else str(store.root)
        click.echo(json.dumps({"directory": place, "limit": store.limit, "entries": rows}, indent=2))
    else:
        _table(store, rows)


@command.command("clear", short_help="Remove every compiled kernel.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed, as JSON.")
def clear_entries(as_json: bool) -> None:
    """Remove every compiled kernel; they are compiled again when they are next needed.

    \b
    Examples:
      nbxtensor cache clear
      nbxtensor cache clear --json
    """
    store = default_store()
    count, nbytes = store.clear()
    if as_json:
        click.echo(json.dumps({"removed": count, "bytes": nbytes}))
    else:
        click.echo(f"removed {counted(count, 'kernel')}, {size(nbytes)}")
