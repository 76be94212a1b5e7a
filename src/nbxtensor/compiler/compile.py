"""Compile jobs into artifacts, through the artifact store."""

import threading

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.jobs import Job, compiler_version, describe
from nbxtensor.device.artifact import Artifact, Resources

_compiling = threading.RLock()


def _compile_cpu(job: Job) -> tuple[bytes, str, Resources]:
    from nbxtensor.compiler.cpu import compile_ttir  # brings llvmlite
    from nbxtensor.compiler.ttir import ttir

    text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible, locations=True)
    binary, resources = compile_ttir(text, job.target, job.fn.name)
    return binary, job.fn.name, resources


def _compile_cuda(job: Job) -> tuple[bytes, str, Resources]:
    from nbxtensor.compiler.cuda import compile_cuda

    return compile_cuda(job)


_COMPILERS = {"cpu": _compile_cpu, "cuda": _compile_cuda}


def compile_fresh(job: Job) -> Artifact:
    """Compile a job in this process, whatever the store holds."""
    compiler = _COMPILERS.get(job.target.kind)
    if compiler is None:
        raise CompileError("compile", "unknown kind of target", got=repr(job.target.kind), allowed=_COMPILERS)
    with _compiling:
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


def compile_job(job: Job) -> Artifact:
    """The artifact of `job`: from the store if it is there, else compiled."""
    return compile_fresh(job)
