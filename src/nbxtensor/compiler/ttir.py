"""From a kernel source to Triton's first IR (TTIR), the level that all our targets share."""

from collections.abc import Mapping
from typing import Any

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Options


def triton_source(
    fn: KernelFunction,
    signature: Mapping[str, str],
    constants: Mapping[str, object],
    divisible: frozenset[str] = frozenset(),
) -> Any:
    """Triton's ``ASTSource`` of `fn`.

    Parameters
    ----------
    signature
        Name -> type of each run-time argument (``"*fp32"``, ``"i64"``).
    constants
        Name -> value of each ``tl.constexpr`` argument; a `KernelFunction` is handed over as a function.
    divisible
        Names of run-time arguments (pointers or integers) that are multiples of 16.
    """
    from triton.compiler import ASTSource  # imported when something must be compiled

    types = {n: signature.get(n, "constexpr") for n in fn.parameters}
    missing = [n for n, t in types.items() if t == "constexpr" and n not in constants]
    if missing:
        raise CompileError("compile", f"kernel {fn.name} lacks a type or a constant for {', '.join(missing)}")
    values = {(fn.parameters.index(n),): v.jit if isinstance(v, KernelFunction) else v for n, v in constants.items()}
    attrs = {(fn.parameters.index(n),): [["tt.divisibility", 16]] for n in sorted(divisible)}
    return ASTSource(fn=fn.jit, signature=types, constexprs=values, attrs=attrs)


def ttir(
    fn: KernelFunction,
    signature: Mapping[str, str],
    constants: Mapping[str, object],
    options: Options | None = None,
    divisible: frozenset[str] = frozenset(),
    *,
    locations: bool = False,
) -> str:
    """The optimised TTIR of `fn` as text; with `locations`, source lines are kept for error messages."""
    import triton
    from triton._C.libtriton import ir  # pyright: ignore[reportUnknownVariableType]
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    options = options or Options()
    source = triton_source(fn, signature, constants, divisible)
    backend: Any = make_backend(GPUTarget("cuda", 90, 32))
    parsed = backend.parse_options(
        {"num_warps": options.num_warps, "num_stages": options.num_stages, "enable_fp_fusion": False}
    )
    context: Any = ir.context()  # pyright: ignore[reportUnknownVariableType]
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        module = source.make_ir(
            GPUTarget("cuda", 90, 32),
            parsed,
            backend.get_codegen_implementation(parsed),
            backend.get_module_map(),
            context,
        )
        stages: dict[str, Any] = {}
        backend.add_stages(stages, parsed, source.language)
        module = stages["ttir"](module, {})
    except triton.CompilationError as error:
        raise CompileError("compile", f"kernel {fn.name} is not valid: {error}") from error
    return str(module) if locations else module.str_nodebug()
