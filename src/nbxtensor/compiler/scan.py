"""Finds operations that would break "one answer" in the TTIR and the PTX of a kernel.

A universal kernel gives the same bits on every device, so it may only use operations whose result is fixed by IEEE 754
or by integer arithmetic, in an order fixed by the source. These functions list what else is there; a test calls them
for every registered kernel.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_EXACT_MATH = frozenset(("fma", "floor", "ceil", "absf", "absi", "ctlz", "cttz", "ctpop"))
_FLOAT_STEPS = frozenset(("addf", "subf", "mulf", "divf", "negf", "maxnumf", "minnumf", "maximumf", "minimumf", "fma"))
_ORDERED_STEPS = ("arith.addf", "arith.subf", "arith.mulf", "math.fma")
_RESULT = re.compile(r"%\w+(?::\d+)? = (.*)")
_OPERATION = re.compile(r'"?([a-z_]+)\.([a-z_0-9.]+)"?')
_ELEMENT = re.compile(r"(?:tensor<(?:\d+x)+|[ (<,])(bf16|f16|f32|f64)\b")
_INSTRUCTION = re.compile(r"(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)*)\s")
_APPROXIMATE = frozenset(("ftz", "approx", "full"))
NARROWED = re.compile(
    r"\b((add|sub|mul)\.rn|neg|(max|min)(\.NaN)?)\.(bf16|f16)(x2)?\s"
    r"|\bv_(pk_)?(add|sub|subrev|mul|max|min|maximum|minimum)\w*_f16"
)
"""16-bit arithmetic that LLVM makes of a float32 operation between widened operands and a result that is narrowed.

It is exact to do so: float32 has more than twice the digits, so rounding once or twice gives the same bits, and a
maximum rounds nothing.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One forbidden operation.

    Attributes
    ----------
    rule
        What is forbidden, in words.
    mend
        What to write instead.
    line
        Its line in the text, from 1.
    text
        That line.
    """

    rule: str
    mend: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule} ({self.mend}): {self.text}"


def scan_ttir(text: str) -> list[Finding]:
    """Forbidden operations in the TTIR of a universal kernel."""
    lines = text.splitlines()
    found: list[Finding] = []
    zeros: set[str] = set()
    for i, raw in enumerate(lines):
        line = raw.strip()
        for rule, mend in _ttir_rules(lines, i, line, zeros):
            found.append(Finding(rule, mend, i + 1, line))
    return found


def _ttir_rules(lines: list[str], i: int, line: str, zeros: set[str]) -> Iterator[tuple[str, str]]:
    match = _RESULT.match(line)
    body = match[1] if match else line
    operation = _OPERATION.match(body)
    if operation is None:
        return
    dialect, name = operation.groups()
    elements = set(_ELEMENT.findall(body))
    _track_zero(line, body, zeros)
    exact = name in _EXACT_MATH or (name == "sqrt" and elements == {"f64"})
    if dialect == "math" and not exact:
        yield f"math.{name} differs between devices", "use the function of nbxtensor.kernel.math"
    if name == "extern_elementwise":
        yield "a libdevice call differs between devices", "use the function of nbxtensor.kernel.math"
    if name == "elementwise_inline_asm":
        yield "inline assembly runs on one kind of device", "write it in Triton's language"
    if dialect == "arith" and name == "divf" and elements & {"f32", "f16", "bf16"}:
        yield "'/' is not correctly rounded", "use tl.div_rn"
    if name == "remf":
        yield "'%' on floats differs between devices", "compute the remainder in exact steps"
    if dialect in ("arith", "math") and name in _FLOAT_STEPS and elements & {"f16", "bf16"}:
        yield "16-bit arithmetic differs between devices", "convert to float32 first"
    if "fastmath<" in body and "fastmath<none>" not in body:
        yield "fast-math flags let compilers change the result", "compile without them"
    if name == "subf" and _operands(body)[:1] and _operands(body)[0] in zeros:
        yield "0 - x loses the sign of zero", "flip the sign bit"
    if name == "atomic_rmw" and re.search(r"atomic_rmw \w*f\w*(add|max|min)|atomic_rmw fadd", body):
        yield "float atomics have no order", "write partial results and add them in a second launch"
    if name == "dot" and elements:
        yield from _dot_rules(body, elements)
    if dialect == "tt" and name in ("reduce", "scan"):
        yield from _reduction_rules(lines, i, name)


def _operands(body: str) -> list[str]:
    return re.findall(r"%[\w#]+", body)


def _track_zero(line: str, body: str, zeros: set[str]) -> None:
    """Follow +0.0 from its constant through splats and broadcasts."""
    result = line.split(" ", 1)[0]
    if not line.startswith("%"):
        return
    constant = re.match(r"arith\.constant (?:dense<)?0\.0+e\+00>? : (?:tensor<\S*)?(?:b?f\d+)", body)
    passes = re.match(r"tt\.(?:splat|broadcast|expand_dims|reshape) (%[\w#]+)", body)
    if constant or (passes and passes[1] in zeros):
        zeros.add(result)
    else:
        zeros.discard(result)


def _dot_rules(body: str, elements: set[str]) -> Iterator[tuple[str, str]]:
    if elements & {"f16", "bf16", "f64"}:
        yield "a dot of this type runs on tensor cores", "use float32, or declare the guarantee 'device'"
    if "inputPrecision = " in body and "inputPrecision = ieee" not in body:
        yield "a dot in tf32 rounds its inputs", 'use input_precision="ieee"'


def _reduction_rules(lines: list[str], i: int, name: str) -> Iterator[tuple[str, str]]:
    region: list[str] = []
    closing = ""
    depth = 0
    for line in lines[i:]:
        depth += line.count("({") - line.count("})")
        if depth <= 0:
            closing = line
            break
        region.append(line)
    axis = re.search(r"axis = (\d+)", lines[i])
    shape = re.search(r"tensor<((?:\d+x)+)", closing)
    extent = int(shape[1].rstrip("x").split("x")[int(axis[1])]) if shape and axis else 0
    ordered = [step for step in _ORDERED_STEPS if any(f"{step} " in line for line in region)]
    if ordered and extent > 2:
        yield (
            f"the order in which tt.{name} applies {ordered[0]} to {extent} floats depends on the layout",
            "use the canonical reductions of nbxtensor.kernel.reduce",
        )


def scan_ptx(text: str, ttir: str) -> list[Finding]:
    """Forbidden instructions in the PTX of a universal kernel.

    Parameters
    ----------
    ttir
        The TTIR that the PTX was made from: it says where fused multiply-adds are meant.
    """
    fused = "math.fma" in ttir or re.search(r"tt\.dot .*tensor<(?:\d+x)+f32>", ttir) is not None
    found: list[Finding] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, *parts = match[1].split(".")
        for rule, mend in _ptx_rules(name, parts, fused):
            found.append(Finding(rule, mend, number, line))
    return found


def _ptx_rules(name: str, parts: list[str], fused: bool) -> Iterator[tuple[str, str]]:
    types = set(parts)
    half = types & {"f16", "f16x2", "bf16", "bf16x2"}
    for word in sorted(_APPROXIMATE & types):
        yield f".{word} is not IEEE arithmetic", "use exact operations, and enable_reflect_ftz=False"
    if name in ("fma", "mad") and types & {"f32", "f64"} and not fused:
        yield "a multiplication and an addition were contracted", "compile with enable_fp_fusion=False"
    if name in ("add", "sub", "mul", "fma", "neg", "max", "min") and half:
        yield "16-bit arithmetic differs between devices", "convert to float32 first"
    if name in ("mma", "wgmma", "tcgen05"):
        yield "tensor cores fix no order", "use float32, or declare the guarantee 'device'"
    if name in ("atom", "red") and types & {"f32", "f64", "f16", "f16x2", "bf16", "bf16x2"}:
        yield "float atomics have no order", "write partial results and add them in a second launch"
    if name == "call":
        yield "a function outside the kernel is called", "keep to Triton's language"
