"""Kernel sources: the ``@kernel`` decorator and the stand-in for ``triton.language``.

A kernel is a plain Python function written in Triton's language. The decorator keeps it as it is; Triton is imported
only when something must be compiled, and only then are the names that the kernel uses (``tl``, other kernels, module
constants) bound to what Triton expects.
"""

import ast
import hashlib
import inspect
import linecache
import struct
import textwrap
import types
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any, cast

from nbxtensor.base.errors import CompileError


class _Language:
    """Stands for ``triton.language`` until the first compile; annotations like ``tl.constexpr`` resolve to names."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"tl.{name}"


tl: Any = _Language()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names_read(code: types.CodeType) -> set[str]:
    """Names that are looked up outside the function (attributes are among them, locals are not)."""
    return {name for c in _codes(code) for name in (*c.co_names, *c.co_freevars)}


def _function_tree(fn: Callable[..., Any]) -> ast.FunctionDef:
    """The syntax tree of `fn`. The compiled code knows its lines, which spares `inspect` a search for the end."""
    code: types.CodeType = fn.__code__  # pyright: ignore[reportFunctionMemberAccess]
    last = max(end or 0 for c in _codes(code) for _, end, _, _ in c.co_positions())
    lines = linecache.getlines(code.co_filename, fn.__globals__)[code.co_firstlineno - 1 : last]
    for text in ("".join(lines), None):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(fn) if text is None else text)).body
        except SyntaxError:
            continue
        if len(tree) == 1 and isinstance(tree[0], ast.FunctionDef) and tree[0].name == fn.__name__:
            return tree[0]
    raise CompileError("compile", f"the source of kernel {fn.__module__}.{fn.__name__} cannot be read")


def _spell(node: ast.AST, parts: list[str], names: set[str]) -> None:
    """Append what `node` says to `parts`, and the names in it to `names`.

    Like ``ast.dump``, but faster, and without fields that are empty, since newer versions of Python add some.
    """
    if isinstance(node, ast.Name):
        names.add(node.id)
        parts.append(node.id)
        return
    parts.append(f"({node.__class__.__name__}")
    for field in node._fields:
        value: Any = getattr(node, field, None)
        if isinstance(value, ast.AST):
            if field != "ctx":
                parts.append(field)
                _spell(value, parts, names)
        elif isinstance(value, list):
            if value:
                parts.append(f"{field}[")
                for item in value:  # pyright: ignore[reportUnknownVariableType]
                    if isinstance(item, ast.AST):
                        _spell(item, parts, names)
                    else:
                        parts.append(repr(item))  # pyright: ignore[reportUnknownArgumentType]
                parts.append("]")
        elif value is not None or field == "value":
            parts.append(f"{field}={value!r}")
    parts.append(")")


@cache
def _nan(bits: bytes) -> Any:
    import triton.language as language

    class Nan(language.constexpr):  # pyright: ignore[reportUntypedBaseClass, reportGeneralTypeIssues]
        """Equals its copies: Triton compares what a helper read when it was met on two ways."""

        def __eq__(self, other: object) -> Any:
            return language.constexpr(type(other) is Nan)

        def __ne__(self, other: object) -> Any:
            return language.constexpr(type(other) is not Nan)

        __hash__ = language.constexpr.__hash__  # pyright: ignore[reportAssignmentType]

    return Nan(struct.unpack("d", bits)[0])


def _constant(value: bool | int | float) -> Any:
    """A module constant as kernels read it."""
    import triton.language as language

    return language.constexpr(value) if value == value else _nan(struct.pack("d", value))


class KernelFunction:
    """A function in Triton's language: a kernel, or a helper that kernels call.

    Attributes
    ----------
    fn
        The plain function.
    name
        Its name, which is also the entry point in binaries.
    source_hash
        Hash of its source and of everything of ours that it calls (hex). Comments, docstrings and layout do not count.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.parameters = tuple(inspect.signature(fn).parameters)

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.name}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by module and name, as functions are

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.name} is a kernel: launch it through nbxtensor.kernel.launch, it cannot be called")

    @cached_property
    def _parsed(self) -> tuple[str, dict[str, Any]]:
        """A text that stands for the function's source, and the module-level names that its body reads."""
        tree = _function_tree(self.fn)
        if ast.get_docstring(tree, clean=False) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        tree.decorator_list = []
        parts: list[str] = []
        names: set[str] = set()
        _spell(tree, parts, names)
        code = self.fn.__code__
        cells = zip(code.co_freevars, self.fn.__closure__ or (), strict=True)
        scope = {**self.fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        read = sorted(names & _names_read(code))
        return " ".join(parts), {n: scope[n] for n in read if n in scope and scope[n] is not tl}

    @property
    def uses(self) -> dict[str, Any]:
        """Module-level names that the body reads: other kernels and constants."""
        return self._parsed[1]

    @cached_property
    def source_hash(self) -> str:
        text, uses = self._parsed
        digest = hashlib.sha256(text.encode())
        for name, value in uses.items():
            if isinstance(value, KernelFunction):
                part = value.source_hash
            elif isinstance(value, (bool, int, float, str, tuple)) or value is None:
                part = repr(cast("object", value))
            else:
                raise CompileError(
                    "compile", f"kernel {self.__module__}.{self.name} reads {name}, which it cannot use",
                    got=type(value).__name__, allowed="kernels, numbers, strings, tuples and tl",
                )  # fmt: skip
            digest.update(f"\0{name}={part}".encode())
        return digest.hexdigest()

    @cached_property
    def jit(self) -> Any:
        """Triton's JITFunction of this kernel (imports Triton)."""
        import triton  # the first compile of a process is the only place that needs it
        import triton.language as language

        scope = dict(self.fn.__globals__)
        for name, value in self.uses.items():
            if isinstance(value, KernelFunction):
                scope[name] = value.jit
            elif isinstance(value, (bool, int, float)):
                scope[name] = _constant(value)
        for name, value in scope.items():
            if value is tl:
                scope[name] = language
        bound = types.FunctionType(self.fn.__code__, scope, self.fn.__name__, self.fn.__defaults__, self.fn.__closure__)
        bound.__kwdefaults__ = self.fn.__kwdefaults__
        bound.__module__ = self.fn.__module__
        bound.__qualname__ = self.fn.__qualname__
        bound.__annotations__ = {
            k: language.constexpr if v in ("tl.constexpr", "constexpr") else v
            for k, v in self.fn.__annotations__.items()
        }
        function = triton.jit(bound)
        function.parse = cache(function.parse)  # Triton asks for the tree again whenever it meets other types
        return function


def kernel(fn: Callable[..., Any]) -> KernelFunction:
    """Mark a function as written in Triton's language (a kernel, or a helper that kernels call)."""
    return KernelFunction(fn)
