"""From a kernel source to an hsaco, the binary of AMD GPUs: compiled and checked here, not yet run on one."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.hsaco import kernel_facts
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.ttir import Backend, lower, require_triton
from nbxtensor.device.artifact import Resources
from nbxtensor.device.profile import load_profile

ARCHES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
"""What kernels are compiled for."""


@dataclass(frozen=True, slots=True)
class Amdgcn:
    """Assembly of one kernel, its entry point, its binary, and the shared memory that a program needs."""

    text: str
    symbol: str
    binary: bytes
    shared_bytes: int


_NARROWING = re.compile(
    r"^  (%\S+) = fptrunc (float|<(\d+) x float>) (%\S+) to ((?:half|<\d+ x half>).*)$", re.MULTILINE
)
_BITS = re.compile(r"^  (%\S+) = bitcast ", re.MULTILINE)


def fenced(llvm: str) -> str:
    """LLVM IR in which no operation is merged with the rounding of its result to float16.

    LLVM would make one instruction (``v_fma_mixlo``) of them, which adds +0.0 to a product and so loses the sign of
    its zero. Bits that are only taken for a float have no operation to merge with; LLVM fails at a fence of such, if
    they lie in a scalar register.
    """
    types: set[tuple[str, str]] = set()
    bits = set(_BITS.findall(llvm))

    def fence(match: re.Match[str]) -> str:
        name, wide, lanes, value, half = match.groups()
        if value in bits:
            return match[0]
        suffix = f"v{lanes}f32" if lanes else "f32"
        types.add((wide, suffix))
        held = f"%fenced.{name[1:]}"
        call = f"call {wide} @llvm.arithmetic.fence.{suffix}({wide} {value})"
        return f"  {held} = {call}\n  {name} = fptrunc {wide} {held} to {half}"

    text = _NARROWING.sub(fence, llvm)
    declared = [f"declare {wide} @llvm.arithmetic.fence.{suffix}({wide})" for wide, suffix in sorted(types)]
    return "\n".join([text, *declared, ""]) if declared else llvm


class _WithDenormals:
    """Stands before Triton's bindings: where the lowering to LLVM may flush denormals, it is told not to.

    Triton has no option for it; its ``sqrt`` is wrong for denormals otherwise.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("passes", "ttgpuir"):
            return _WithDenormals(found)
        if name in ("add_to_llvmir", "add_builtin_func_to_llvmir"):

            def without_flush(*args: Any) -> Any:
                return found(*args[:-1], False)

            return without_flush
        return found


@contextmanager
def _denormals_kept() -> Generator[None]:
    from triton.backends.amd import compiler as module

    compiler: Any = module
    bindings = compiler.amd
    compiler.amd = _WithDenormals(bindings)
    try:
        yield
    finally:
        compiler.amd = bindings


def lower_to_amdgcn(job: Job) -> Amdgcn:
    """Assembly and binary of a job for an AMD target, without line information."""
    triton = require_triton()
    arch = job.target.arch
    if arch not in ARCHES:
        raise CompileError("compile", "not an AMD architecture that is compiled for", got=repr(arch), allowed=ARCHES)
    # No matrix instruction has this shape. A dot is a chain of fused multiply-adds then, as on every other device.
    settings = (("arch", arch), ("matrix_instr_nonkdim", 1))
    warp_size = load_profile(arch).warp_size
    with triton.knobs.compilation.scope(), triton.knobs.amd.scope():
        triton.knobs.compilation.disable_line_info = True
        triton.knobs.amd.use_block_pingpong = False  # a pass for matrix instructions, which fails where there are none
        lowering = lower(
            job.fn,
            dict(job.signature),
            dict(job.constants),
            job.options,
            job.divisible,
            backend=Backend("hip", arch, warp_size, settings),
        )
        with _denormals_kept():
            lowering.run("ttgir")
            lowering.run("llir")
        lowering.module = fenced(str(lowering.module))
        lowering.run("amdgcn")
        text = str(lowering.module)
        lowering.run("hsaco")
    facts = lowering.metadata
    if facts.get("global_scratch_size") or facts.get("profile_scratch_size"):
        raise CompileError("compile", f"kernel {job.name} needs global scratch memory, which no launch here provides")
    return Amdgcn(text, str(facts["name"]), bytes(lowering.module), int(facts["shared"]))


def resources_of(made: Amdgcn) -> Resources:
    """What a binary needs; scratch memory counts as stack."""
    facts = kernel_facts(made.binary, made.symbol)
    return Resources(
        registers=facts.vector_registers,
        stack_bytes=facts.scratch_bytes,
        shared_bytes=facts.shared_bytes + made.shared_bytes,  # what the binary reserves, and what a launch adds
    )


def compile_hip(job: Job) -> tuple[bytes, str, Resources]:
    """Binary, entry point and resources of a job for an AMD target."""
    made = lower_to_amdgcn(job)
    return made.binary, made.symbol, resources_of(made)
