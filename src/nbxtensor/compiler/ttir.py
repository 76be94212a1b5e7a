"""From a kernel source to Triton's first IR (TTIR), the level that all our targets share.

Triton's stages are driven here one by one: its ``compile`` would hash its whole library and write a cache of its own.
"""

import tempfile
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from nbxtensor.base.errors import CompileError, MissingDependencyError
from nbxtensor.compiler.front_end import quick_front_end, without_collection
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Options

BASE_CAPABILITY = 90
PLAIN_DOTS = 89


@dataclass(frozen=True, slots=True)
class Backend:
    """Which of Triton's backends lowers a kernel, and what it is told beyond what all of ours are told.

    Attributes
    ----------
    kind
        ``"cuda"`` or ``"hip"``.
    arch
        As Triton names it: 90, or ``"gfx942"``.
    dots_as
        Compute capability whose rules choose the instructions of a kernel with dots, if not those of `arch`.
    """

    kind: str
    arch: int | str
    warp_size: int
    settings: tuple[tuple[str, object], ...] = ()
    dots_as: int | None = None


def cuda_backend(capability: int, ptx_version: int | None = None) -> Backend:
    """The backend of a compute capability (90 is sm_90)."""
    settings: dict[str, object] = {"arch": f"sm{capability}", "enable_reflect_ftz": False, "ptx_options": ""}
    if ptx_version is not None:
        settings["ptx_version"] = ptx_version
    # Triton gives dots of widened 16-bit operands to the tensor cores of sm_100, also where it is asked for IEEE.
    return Backend("cuda", capability, 32, tuple(settings.items()), PLAIN_DOTS if capability >= 100 else None)


BASE = cuda_backend(BASE_CAPABILITY)


def require_triton() -> Any:
    """The triton package, or the error that says how to get it."""
    try:
        import triton  # large and slow to import: only where something must be compiled
    except ImportError as error:
        raise MissingDependencyError(
            "compile", "Triton is needed to compile a kernel", mend="install nbxtensor[compile]"
        ) from error
    return triton


@contextmanager
def explained(fn: KernelFunction, stage: str) -> Generator[None]:
    """Turn whatever Triton raises into a `CompileError` that names the kernel."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:
        where = f"{fn.__module__}.{fn.__qualname__}"
        cause: BaseException = error
        while cause.__cause__ is not None:  # the innermost has the line of the helper that is at fault
            cause = cause.__cause__
        text = str(cause).strip() or type(cause).__name__
        raise CompileError("compile", f"kernel {where} failed in {stage}: {text}") from error


def _hand_over(value: object) -> Any:
    """A constant as Triton takes it: kernels as its functions, dtypes as its dtypes."""
    if isinstance(value, KernelFunction):
        return value.jit
    if isinstance(value, tuple):
        return tuple(_hand_over(v) for v in cast("tuple[object, ...]", value))
    name = getattr(value, "triton", None)
    if isinstance(name, str):
        import triton.language as language

        return language.dtype({"i": "int", "u": "uint"}[name[0]] + name[1:] if name[0] in "iu" else name)
    return value


def triton_source(
    fn: KernelFunction,
    signature: Mapping[str, object],
    constants: Mapping[str, object],
    divisible: frozenset[str] = frozenset(),
) -> Any:
    """Triton's ``ASTSource`` of `fn`.

    Parameters
    ----------
    signature
        Name -> type of each run-time argument (``"*fp32"``, ``"i64"``, or a tuple of types).
    constants
        Name -> value of each ``tl.constexpr`` argument; a `KernelFunction` is handed over as a function.
    divisible
        Names of run-time arguments (pointers or integers) that are multiples of 16; ``"shape.1"`` names the second
        part of a tuple.
    """
    from triton.compiler import ASTSource  # imported when something must be compiled

    unknown = sorted({*signature, *constants, *(d.split(".")[0] for d in divisible)} - set(fn.parameters))
    if unknown:
        raise CompileError("compile", f"kernel {fn.name} has no argument {', '.join(unknown)}", allowed=fn.parameters)
    types = {n: signature.get(n, "constexpr") for n in fn.parameters}
    missing = [n for n, t in types.items() if t == "constexpr" and n not in constants]
    if missing:
        raise CompileError("compile", f"kernel {fn.name} lacks a type or a constant for {', '.join(missing)}")
    values = {(fn.parameters.index(n),): _hand_over(v) for n, v in constants.items()}
    attrs: dict[tuple[int, ...], list[list[object]]] = {}
    for entry in sorted(divisible):
        name, *path = entry.split(".")
        attrs[(fn.parameters.index(name), *map(int, path))] = [["tt.divisibility", 16]]
    return ASTSource(fn=fn.jit, signature=types, constexprs=values, attrs=attrs)


@dataclass(slots=True)
class Lowering:
    """A kernel on its way down through Triton's stages.

    Attributes
    ----------
    module
        What the last stage gave (an MLIR module, later text).
    metadata
        What the stages said about the kernel (``name``, ``shared``, ...).
    """

    fn: KernelFunction
    module: Any
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]]
    context: Any
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def run(self, stage: str) -> None:
        """Run one stage: ``ttir``, ``ttgir``, ``llir``, then ``ptx`` (cuda) or ``amdgcn`` and ``hsaco`` (hip)."""
        with explained(self.fn, stage):
            self.module = self.stages[stage](self.module, self.metadata)


_texts: ContextVar[dict[Hashable, str] | None] = ContextVar("texts", default=None)


@contextmanager
def one_front_end() -> Generator[None]:
    """Have what Triton's front end made of a kernel serve every backend that the kernel is lowered with in here.

    Kernels with dots pass through it each time, since backends have rules of their own for those.
    """
    token = _texts.set({})
    try:
        yield
    finally:
        _texts.reset(token)


def _made_once(key: Hashable, make: Callable[[], Any], context: Any) -> Any:
    """The module that `make` gives, or a copy of it in another context."""
    texts = _texts.get()
    if texts is None:
        return make()
    text = texts.get(key)
    if text is None:
        module = make()
        text = str(module)
        if "tt.dot" not in text:
            texts[key] = text
        return module
    from triton._C import libtriton

    library: Any = libtriton
    with tempfile.NamedTemporaryFile("w", prefix="nbxtensor-", suffix=".ttir") as file:
        file.write(text)
        file.flush()
        copy: Any = library.ir.parse_mlir_module(file.name, context)
    copy.context = context
    return copy


def lower(
    fn: KernelFunction,
    signature: Mapping[str, object],
    constants: Mapping[str, object],
    options: Options,
    divisible: frozenset[str],
    backend: Backend = BASE,
) -> Lowering:
    """Bring `fn` to optimised TTIR with one of Triton's backends."""
    require_triton()
    from triton._C.libtriton import ir  # pyright: ignore[reportUnknownVariableType]
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    with explained(fn, "Triton's front end"), quick_front_end(), without_collection():
        source = triton_source(fn, signature, constants, divisible)
        target = GPUTarget(backend.kind, backend.arch, backend.warp_size)
        compiler: Any = make_backend(target)
        parsed = compiler.parse_options(
            {
                "num_warps": options.num_warps,
                "num_stages": options.num_stages,
                "enable_fp_fusion": False,
                "default_dot_input_precision": "ieee",
                **dict(backend.settings),
            }
        )
        context: Any = ir.context()  # pyright: ignore[reportUnknownVariableType]
        ir.load_dialects(context)
        compiler.load_dialects(context)
        codegen = compiler.get_codegen_implementation(parsed)

        def make() -> Any:
            return source.make_ir(target, parsed, codegen, compiler.get_module_map(), context)

        module = _made_once((fn, repr(signature), repr(constants), divisible, options), make, context)
        stages: dict[str, Any] = {}
        compiler.add_stages(stages, parsed, source.language)
        facts: dict[str, Any] = {**vars(parsed)}  # stages look options up among them
    lowering = Lowering(fn, module, stages, context, facts)
    lowering.run("ttir")
    if backend.dots_as is not None and "tt.dot" in str(lowering.module):

        def plain(module: Any, facts: dict[str, Any]) -> Any:
            return compiler.make_ttgir(module, facts, parsed, backend.dots_as)

        stages["ttgir"] = plain
    return lowering


def ttir(
    fn: KernelFunction,
    signature: Mapping[str, object],
    constants: Mapping[str, object],
    options: Options | None = None,
    divisible: frozenset[str] = frozenset(),
    *,
    locations: bool = False,
) -> str:
    """The optimised TTIR of `fn` as text; with `locations`, source lines are kept for error messages."""
    module = lower(fn, signature, constants, options or Options(), divisible).module
    return str(module) if locations else module.str_nodebug()
