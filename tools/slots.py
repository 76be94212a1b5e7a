"""Instructions an element costs on an NVIDIA GPU: ``python tools/slots.py [NAME...]``.

Compiles elementwise kernels for sm_90 (no GPU needed), takes the way of a whole tile through the machine code (no mask,
no rare branch) and prints, for each function and dtype: instructions per element, those among them that only the
half-rate pipe takes, and registers per thread.
"""

import argparse
import heapq
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType, float32, float64
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Artifact, Options, Target
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel import math as device_math
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.math64 import for_64_bit
from nbxtensor.kernel.pointwise import ABSENT, ELEMENT, pointwise_flat_kernel

TARGET = Target("cuda", "sm_90")
UNARY = (
    "sin", "cos", "sigmoid", "silu", "gelu", "gelu_tanh", "tanh", "erf", "exp", "exp2", "expm1", "log", "log2", "log1p",
    "softplus",
)  # fmt: skip
BINARY = ("pow",)
# Pipes of a quarter of an SM on sm_90: these take one warp every second cycle, FFMA, FADD and FMUL one every cycle.
HALF_RATE = re.compile(
    r"^(LOP3|SHF|IADD3|ISETP|FSETP|FSEL|SEL|FMNMX|VIMNMX|IMNMX|LEA|PRMT|PLOP3|IABS|F2FP|FCHK|LOP|SHL|SHR|P2R|R2P)"
)
LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.]+)(.*?);")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET_LABEL = re.compile(r"`\((\.L_x_\d+)\)")


@dataclass
class Block:
    """Instructions up to the next jump or label, and where it goes from there."""

    names: list[str] = field(default_factory=list[str])
    stores: bool = False  # writes the result for all threads
    exits: bool = False
    falls: bool = True
    targets: list[str] = field(default_factory=list[str])


def disassemble(artifact: Artifact) -> str:
    """The machine code of a kernel as text."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(artifact.binary)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


def blocks(text: str, symbol: str) -> tuple[list[Block], dict[str, int]]:
    """Basic blocks in their order, and the number of the block at each label."""
    found, labels = [Block()], dict[str, int]()
    for line in text.splitlines():
        if label := LABEL.match(line):
            if found[-1].names:
                found.append(Block())
            labels[label[1]] = len(found) - 1
        elif op := LINE.match(line):
            _, guard, name, rest = op.groups()
            block = found[-1]
            block.names.append(name)
            stem = name.split(".")[0]
            block.stores |= stem == "STG" and not guard
            if stem in ("BRA", "EXIT", "RET", "CALL", "BREAK"):
                block.targets += TARGET_LABEL.findall(rest) if stem == "BRA" else []
                # A jump whose condition is an operand: `BRA P0, ...`, `BRA.DIV UR4, ...`.
                always = not guard and (stem != "BRA" or rest.split("`")[0].strip() == "")
                block.exits |= stem == "EXIT"
                block.falls = not always or stem == "CALL"
                found.append(Block())
    return found, labels


def path(found: list[Block], labels: dict[str, int]) -> list[str]:
    """Instructions on the shortest way to the end that stores without a mask."""
    queue: list[tuple[int, int, bool, tuple[int, ...]]] = [(0, 0, False, ())]
    seen: set[tuple[int, bool]] = set()
    while queue:
        cost, at, stored, way = heapq.heappop(queue)
        if (at, stored) in seen or at >= len(found):
            continue
        seen.add((at, stored))
        block = found[at]
        cost, stored, way = cost + len(block.names), stored or block.stores, (*way, at)
        if block.exits and stored:
            return [name for i in way for name in found[i].names]
        following = [labels[t] for t in block.targets] + ([at + 1] if block.falls else [])
        for to in following:
            heapq.heappush(queue, (cost, to, stored, way))
    raise SystemExit("no way through the kernel stores without a mask")


def compile_pointwise(fn: KernelFunction, operands: int, dtype: DType, block: int, warps: int) -> Artifact:
    """The kernel of `fn` over flat operands."""
    absent = range(operands, 3)
    arguments: dict[str, Any] = {
        "out_ptr": Pointer(dtype),
        **{f"x{i}": Pointer(dtype) for i in range(operands)},
        "n_elements": 1 << 26,
    }
    constants: dict[str, Any] = {
        **{f"x{i}": None for i in absent},
        "FN": fn,
        "KINDS": (ELEMENT,) * operands + (ABSENT,) * len(absent),
        "TYPES": (float64 if dtype is float64 else float32,) * 3,
        "RESULT": dtype,
        "BLOCK_SIZE": block,
    }
    device = NullDevice(TARGET)
    plan = Plan(fn.name, pointwise_flat_kernel, device, (1, 1, 1), arguments, constants, Options(num_warps=warps))
    return compile_job(plan.job())


@dataclass(frozen=True)
class Cost:
    """What one element costs, and the registers of a thread."""

    instructions: float
    half_rate: float
    registers: int
    names: Counter[str]


def cost(artifact: Artifact, block: int, warps: int) -> Cost:
    """Count the instructions of a kernel of `block` elements per program."""
    names = path(*blocks(disassemble(artifact), artifact.symbol))
    each = block / (32 * warps)
    half = sum(1 for name in names if HALF_RATE.match(name))
    return Cost(len(names) / each, half / each, artifact.resources.registers, Counter(names))


def rows(names: list[str], dtype: DType, block: int, warps: int) -> Iterator[tuple[str, Cost]]:
    """One function after the other; 16-bit dtypes take the short forms where there are some."""
    for name in names:
        fn = getattr(device_math, name)
        if dtype.itemsize == 2:
            fn = device_math.for_16_bit(fn, dtype)
        elif dtype is float64:
            fn = for_64_bit(fn)
        fn = device_math.for_gpu(fn)
        yield fn.name, cost(compile_pointwise(fn, 2 if name in BINARY else 1, dtype, block, warps), block, warps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=[*UNARY, *BINARY], metavar="NAME")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--block", type=int, default=1024, help="elements per program")
    parser.add_argument("--warps", type=int, help="warps of a program (default: 4, or 2 for 16-bit elements)")
    parser.add_argument("--detail", action="store_true", help="print how often each instruction occurs")
    options = parser.parse_args()
    dtype = getattr(dtypes, options.dtype)
    block, warps = options.block, options.warps or (2 if dtype.itemsize == 2 else 4)
    print(f"{'':18}{'dtype':10}{'slots':>7}{'half rate':>11}{'registers':>11}")
    for name, found in rows(options.names, dtype, block, warps):
        figures = f"{found.instructions:7.1f}{found.half_rate:11.1f}{found.registers:11}"
        print(f"{name:18}{dtype.name:10}{figures}", flush=True)
        if options.detail:
            print("   ", ", ".join(f"{n} {c}" for n, c in found.names.most_common()))


if __name__ == "__main__":
    main()
