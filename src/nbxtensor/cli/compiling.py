"""Compile everything a model or a pack needs, side by side, with a progress bar."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nbxtensor.base.errors import NotPackedError
from nbxtensor.base.text import counted
from nbxtensor.cli.show import progress_bar
from nbxtensor.compiler import packs
from nbxtensor.compiler.compile import Progress, compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.protocol import Device
from nbxtensor.onnx.model import Model
from nbxtensor.onnx.unpacked import explained


@contextmanager
def progress(target: str) -> Generator[Progress]:
    """A function that shows how far compiling for `target` is.

    A bar is drawn on standard error where that is a terminal; elsewhere one line tells what is going on.
    """
    if not sys.stderr.isatty():
        started = False

        def say(done: int, total: int, name: str) -> None:
            nonlocal started
            if not started:
                print(f"compiling {counted(total, 'kernel')} for {target}", file=sys.stderr, flush=True)
            started = True

        yield say
        return
    with progress_bar("compiling kernels", None) as (update, _):
        yield lambda done, total, name: update(completed=done, total=total)


def use_packs(paths: Sequence[Path]) -> None:
    """Have the packs that ``--pack`` names looked into first, in their order."""
    for path in paths:
        packs.use(path)


@contextmanager
def naming_the_file(model: Model, shapes: Mapping[str, tuple[int, ...]], device: Device, file: str) -> Generator[None]:
    """Have an error about a kernel that is in no pack name the file of the model."""
    try:
        yield
    except NotPackedError as error:
        raise explained(error, device.target, model.inputs, shapes, file) from None


def compile_kernels(jobs: Sequence[Job], device: Device) -> int:
    """Compile what packs and the artifact store lack for `device`; returns how many kernels there are."""
    unique = list({job.identity: job for job in jobs}.values())
    if device.computes and unique:
        with progress(str(device.target)) as show:
            compile_many(unique, show)
    return len(unique)
