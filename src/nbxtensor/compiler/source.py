"""Kernel sources: the ``@kernel`` decorator and the stand-in for ``triton.language``.

A kernel is a plain Python function written in Triton's language. The decorator keeps it as it is; Triton is imported
only when something must be compiled, and only then are the names that the kernel uses (``tl``, other kernels, module
constants) bound to what Triton expects.
"""

import ast
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable
from functools import cached_property
from typing import Any


class _Language:
    """Stands for ``triton.language`` until the first compile; annotations like ``tl.constexpr`` resolve to names."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"tl.{name}"


tl: Any = _Language()


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
    def _tree(self) -> ast.FunctionDef:
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.fn))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        tree.decorator_list = []
        return tree

    @cached_property
    def uses(self) -> dict[str, Any]:
        """Module-level names that the body reads: other kernels and constants."""
        scope = {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return {n: scope[n] for n in sorted(names) if n in scope and scope[n] is not tl}

    @cached_property
    def source_hash(self) -> str:
        digest = hashlib.sha256(ast.dump(self._tree).encode())
        for name, value in self.uses.items():
            part = value.source_hash if isinstance(value, KernelFunction) else repr(value)
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
                scope[name] = language.constexpr(value)
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
        return triton.jit(bound)


def kernel(fn: Callable[..., Any]) -> KernelFunction:
    """Mark a function as written in Triton's language (a kernel, or a helper that kernels call)."""
    return KernelFunction(fn)
