"""From jobs to artifacts: out of a pack, out of the artifact store, or compiled."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from nbxtensor.base.errors import CompileError
from nbxtensor.base.knobs import compile_workers
from nbxtensor.base.locks import ForkLock
from nbxtensor.compiler import packs
from nbxtensor.compiler.available import missing_compilers, require_compilers
from nbxtensor.compiler.front_end import without_collection
from nbxtensor.compiler.jobs import Job, compiler_version, describe
from nbxtensor.compiler.key_lock import Lock
from nbxtensor.compiler.store import PATIENCE, ArtifactStore, default_store
from nbxtensor.device.artifact import Artifact, Resources

Progress = Callable[[int, int, str], None]
SERIAL_JOBS = 2  # starting a worker costs as much as compiling a kernel or two

_compiling = ForkLock()


def _compile_cpu(job: Job) -> tuple[bytes, str, Resources]:
    from nbxtensor.compiler.cpu.compile import compile_ttir  # brings llvmlite
    from nbxtensor.compiler.ttir import ttir

    text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible, locations=True)
    binary, resources = compile_ttir(text, job.target, job.fn.name)
    return binary, job.fn.name, resources


def _compile_cuda(job: Job) -> tuple[bytes, str, Resources]:
    from nbxtensor.compiler.cuda import compile_cuda

    return compile_cuda(job)


def _compile_hip(job: Job) -> tuple[bytes, str, Resources]:
    from nbxtensor.compiler.hip import compile_hip

    return compile_hip(job)


_COMPILERS = {"cpu": _compile_cpu, "cuda": _compile_cuda, "hip": _compile_hip}


def artifact_key(job: Job) -> str:
    """Key of the artifact that `compile_job` gives, without compiling: a packed one keeps its own."""
    return packs.key_of(job) or job.key


def compile_fresh(job: Job) -> Artifact:
    """Compile a job in this process, whatever the store holds."""
    compiler = _COMPILERS.get(job.target.kind)
    if compiler is None:
        raise CompileError("compile", "unknown kind of target", got=repr(job.target.kind), allowed=_COMPILERS)
    with _compiling, without_collection():
        binary, symbol, resources = compiler(job)
    return Artifact(
        key=job.key,
        target=job.target,
        symbol=symbol,
        signature=job.flat_signature,
        constants={name: describe(value) for name, value in job.constants},
        options=job.options,
        resources=resources,
        compiler=compiler_version(job.target.kind),
        binary=binary,
    )


def compile_unless_busy(job: Job, store: ArtifactStore, patience: float) -> Artifact | None:
    """The artifact of `job` out of the store, or compiled and stored; packs are not looked into.

    None if another process is compiling `job` and is not done within `patience` seconds.
    """
    found = store.get(job.key)
    if found is not None:
        return found
    require_compilers([job])
    with store.locked(job.key, patience) as lock:
        found = store.get(job.key)
        if found is None and lock is not Lock.BUSY:
            found = compile_fresh(job)
            store.put(found)
        return found


def _stored(job: Job, store: ArtifactStore) -> Artifact:
    found = compile_unless_busy(job, store, PATIENCE)
    if found is None:  # whoever holds the lock is stuck
        found = compile_fresh(job)
        store.put(found)
    return found


def compile_job(job: Job, store: ArtifactStore | None = None) -> Artifact:
    """The artifact of `job`: from a pack or the store if it is there, else compiled in this process and stored.

    Raises
    ------
    CompileError
        The kernel cannot be compiled for the target.
    NotPackedError
        It must be compiled, and the compilers are not installed.
    PackError
        A pack in use cannot be read.
    """
    store = store or default_store()
    return _made_before(job, store, from_packs=True) or _stored(job, store)


def _made_before(job: Job, store: ArtifactStore, from_packs: bool) -> Artifact | None:
    """What `job` gave elsewhere or earlier. Where nothing can be compiled, a binary for an older target does."""
    if not from_packs:
        return store.get(job.key)
    found = packs.find(job) or store.get(job.key)
    if found is None and missing_compilers(job.target.kind):
        return packs.find_for_older(job)
    return found


def _in_turn(jobs: list[Job], store: ArtifactStore) -> Generator[tuple[Job, Artifact]]:
    for job in jobs:
        yield job, _stored(job, store)


def _in_workers(jobs: list[Job], store: ArtifactStore, count: int) -> Generator[tuple[Job, Artifact]]:
    from nbxtensor.compiler.workers import Workers  # brings subprocess and queue, which a warm store never needs

    with Workers(store, count) as workers:
        here: list[Job] = []
        for job, artifact in workers.run(jobs):
            if artifact is None:
                here.append(job)
            else:
                yield job, artifact
    yield from _in_turn(here, store)


def compile_many(
    jobs: Sequence[Job],
    progress: Progress | None = None,
    workers: int | None = None,
    store: ArtifactStore | None = None,
    from_packs: bool = True,
) -> list[Artifact]:
    """The artifacts of `jobs`, in their order; what packs and the store lack is compiled in parallel processes.

    Parameters
    ----------
    progress
        Called as ``progress(done, total, name)`` after each compile; what was in a pack or in the store does not count.
    workers
        Processes at most; by default what the knob NBX_COMPILE_WORKERS says. For one or two jobs none is started.
    from_packs
        Whether packs are looked into; a pack itself is made of what is compiled here.

    Raises
    ------
    CompileError
        Of the first job that fails. Nothing half-written stays behind, also not after Ctrl-C.
    NotPackedError
        Something must be compiled, and the compilers are not installed.
    PackError
        A pack in use cannot be read.
    """
    store = store or default_store()
    artifacts: dict[str, Artifact] = {}
    missing: dict[str, Job] = {}
    for job in jobs:
        if job.identity not in artifacts and job.identity not in missing:
            found = _made_before(job, store, from_packs)
            if found is None:
                missing[job.identity] = job
            else:
                artifacts[job.identity] = found
    require_compilers(list(missing.values()))
    count = min(len(missing), workers or compile_workers.get())
    pending = list(missing.values())
    parallel = count > 1 and len(missing) > SERIAL_JOBS
    with closing(_in_workers(pending, store, count) if parallel else _in_turn(pending, store)) as compiled:
        for done, (job, artifact) in enumerate(compiled, start=1):
            artifacts[job.identity] = artifact
            if progress is not None:
                progress(done, len(missing), job.name)
    return [artifacts[job.identity] for job in jobs]
