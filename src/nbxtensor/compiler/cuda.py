"""From a kernel source to a cubin: Triton down to PTX, then ptxas."""

import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.resources import cubin_usage
from nbxtensor.compiler.ttir import cuda_backend, explained, lower, require_triton
from nbxtensor.device.artifact import Resources

_CUBIN_CUDA_MAJOR = 12  # a cubin of ptxas 12.x loads on CUDA 12 and 13 drivers, one of 13.x only on the latter


@dataclass(frozen=True, slots=True)
class Ptx:
    """PTX text of one kernel, its entry point, and the shared memory that a program needs."""

    text: str
    symbol: str
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class _Assembler:
    path: str
    ptx_version: int


def capability(arch: str) -> int:
    """90 of ``sm_90``; `CompileError` if `arch` has another form."""
    digits = arch.removeprefix("sm_")
    if not arch.startswith("sm_") or not digits.isdigit():
        raise CompileError("compile", "not the name of a CUDA architecture", got=repr(arch), allowed="sm_70 to sm_120")
    return int(digits)


@cache
def _assembler(number: int) -> _Assembler:
    """The ptxas for a capability, and the newest PTX that it reads.

    Triton ships two. The one it would take is taken, unless its cubins need a newer driver than the other one's.
    """
    require_triton()
    from triton import knobs
    from triton.backends.nvidia.compiler import get_ptxas, ptx_get_version

    tools: list[Any] = [get_ptxas(number), knobs.nvidia.ptxas, knobs.nvidia.ptxas_blackwell]
    fitting = [t for t in tools if int(t.version.split(".")[0]) == _CUBIN_CUDA_MAJOR]
    tool = (fitting or tools)[0]
    return _Assembler(tool.path, ptx_get_version(tool.version))


def lower_to_ptx(job: Job) -> Ptx:
    """The PTX of a job for a CUDA target, without line information."""
    triton = require_triton()
    number = capability(job.target.arch)
    version = _assembler(number).ptx_version
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        lowering = lower(
            job.fn,
            dict(job.signature),
            dict(job.constants),
            job.options,
            job.divisible,
            backend=cuda_backend(number, version),
        )
        for stage in ("ttgir", "llir", "ptx"):
            lowering.run(stage)
    facts = lowering.metadata
    if facts["global_scratch_size"] or facts["profile_scratch_size"]:
        raise CompileError("compile", f"kernel {job.name} needs global scratch memory, which no launch here provides")
    if facts.get("num_warps", job.options.num_warps) != job.options.num_warps:
        raise CompileError("compile", f"kernel {job.name} was warp-specialised, which no launch here supports")
    return Ptx(str(lowering.module), str(facts["name"]), int(facts["shared"]))


def assemble(ptx: Ptx, arch: str) -> bytes:
    """The cubin of `ptx`; multiplications and additions stay apart, as in the PTX."""
    number = capability(arch)
    name = f"{arch}a" if number >= 90 else arch
    with tempfile.TemporaryDirectory(prefix="nbxtensor-") as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx.text)
        command = [_assembler(number).path, "--fmad=false", f"--gpu-name={name}", str(source), "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            log = (done.stderr or done.stdout).strip().splitlines()[-5:]
            raise CompileError("compile", f"ptxas refused kernel {ptx.symbol} for {name}", got=" | ".join(log))
        return binary.read_bytes()


def compile_cuda(job: Job) -> tuple[bytes, str, Resources]:
    """Binary, entry point and resources of a job for a CUDA target."""
    ptx = lower_to_ptx(job)
    with explained(job.fn, "ptxas"):
        cubin = assemble(ptx, job.target.arch)
    registers, stack = cubin_usage(cubin, ptx.symbol)
    return cubin, ptx.symbol, Resources(registers=registers, stack_bytes=stack, shared_bytes=ptx.shared_bytes)
