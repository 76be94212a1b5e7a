"""Compile everything a model needs before it runs, side by side, with a progress bar."""

import sys
from collections.abc import Sequence

from nbxtensor.base.text import counted
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.protocol import Device


def compile_kernels(jobs: Sequence[Job], device: Device) -> int:
    """Compile what the artifact store lacks for `device`; returns how many kernels there are.

    The bar is drawn on standard error where that is a terminal; elsewhere one line tells what is going on.
    """
    unique = list({job.key: job for job in jobs}.values())
    if not device.computes or not unique:
        return len(unique)
    if not sys.stderr.isatty():
        started = False

        def say(done: int, total: int, name: str) -> None:
            nonlocal started
            if not started:
                print(f"compiling {counted(total, 'kernel')} for {device.target}", file=sys.stderr, flush=True)
            started = True

        compile_many(unique, say)
        return len(unique)
    from rich.console import Console  # the bar is drawn only where someone sees it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("compiling kernels"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None, visible=False)

        def advance(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        compile_many(unique, advance)
    return len(unique)
