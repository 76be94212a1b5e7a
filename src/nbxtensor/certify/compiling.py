"""Compiling what a proof needs, side by side; a compile that takes too long is ended, and its setting with it."""

import queue
import threading
import time
from collections.abc import Sequence

from nbxtensor.base.errors import NbxError
from nbxtensor.base.knobs import compile_workers
from nbxtensor.compiler import packs
from nbxtensor.compiler.available import missing_compilers
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.store import default_store
from nbxtensor.compiler.workers import Workers
from nbxtensor.device.artifact import Artifact

PATIENCE = 60.0
"""Seconds in which one kernel must be compiled."""
FEW = 4  # starting processes costs more than compiling so few for a CPU here

Compiled = dict[str, "Artifact | str"]
"""Artifact by the key of its job, or why there is none."""


def available(job: Job) -> Artifact | None:
    """The artifact of a job, if a pack or the store has it."""
    return packs.find(job) or default_store().get(job.key)


def compiled(jobs: Sequence[Job], patience: float = PATIENCE) -> Compiled:
    """The artifacts of these jobs, or why there is none; what packs and the store lack is compiled in processes."""
    found: Compiled = {}
    missing: dict[str, Job] = {}
    for job in jobs:
        if job.key not in found and job.key not in missing:
            artifact = available(job)
            if artifact is None:
                missing[job.key] = job
            else:
                found[job.key] = artifact
    if any(missing_compilers(job.target.kind) for job in missing.values()) or (
        len(missing) <= FEW and all(job.target.kind == "cpu" for job in missing.values())
    ):
        for key, job in missing.items():
            found[key] = _here(job)
        return found
    problem = _together(list(missing.values()), compile_workers.get(), patience, found)
    while problem:  # one of those left is to blame: find it alone
        left = [job for key, job in missing.items() if key not in found]
        if not left:
            break
        job, *_ = left
        problem = _together([job], 1, patience, found)
        if problem:
            found[job.key] = problem
        left = [job for key, job in missing.items() if key not in found]
        problem = _together(left, compile_workers.get(), patience, found) if left else ""
    return found


def _here(job: Job) -> Artifact | str:
    try:
        return compile_job(job)
    except NbxError as error:
        return str(error)


def _together(jobs: Sequence[Job], workers: int, patience: float, found: Compiled) -> str:
    """Compile into `found`; "" if all went well, else what stopped it: an error, or no progress for `patience` s."""
    if not jobs:
        return ""
    news: queue.SimpleQueue[tuple[Job, Artifact | None] | NbxError | None] = queue.SimpleQueue()
    with Workers(default_store(), min(workers, len(jobs))) as processes:

        def follow() -> None:
            try:
                for result in processes.run(jobs):
                    news.put(result)
                news.put(None)
            except NbxError as error:
                news.put(error)

        threading.Thread(target=follow, daemon=True).start()
        deadline = time.monotonic() + patience
        while True:
            try:
                got = news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return f"was not compiled within {patience:g} s"
            if got is None:
                return ""
            if isinstance(got, NbxError):
                return str(got)
            job, artifact = got
            found[job.key] = _here(job) if artifact is None else artifact
            deadline = time.monotonic() + patience
