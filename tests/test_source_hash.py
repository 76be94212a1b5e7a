"""What counts as a change of a kernel's source."""

import importlib.util
import itertools
import math
from pathlib import Path
from types import ModuleType

import pytest

from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.source import KernelFunction, kernel

_HEAD = """
import math
from nbxtensor.compiler.source import kernel, tl
FACTOR = 2.0
UNUSED = 1
"""
_HELPER = """
@kernel
def helper(x):
    return x * FACTOR
"""
_KERNEL = """
@kernel
def main_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    '''Doubles.'''
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(
        y_ptr + i,
        helper(x),
        mask=i < n,
    )
"""
_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path):
    def make(text: str) -> ModuleType:
        name = f"made_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec
        assert spec.loader
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    return make


def hashed(module: ModuleType) -> str:
    return module.main_kernel.source_hash


def test_layout_comments_and_docstrings_do_not_count(module):
    base = hashed(module(_HEAD + _HELPER + _KERNEL))
    same = [
        _KERNEL.replace("Doubles.", "Twice as much."),
        _KERNEL.replace("    '''Doubles.'''\n", ""),
        _KERNEL.replace("i = tl", "# a remark\n    i  =  tl"),
        _KERNEL.replace("y_ptr + i,\n        helper(x),\n        mask=i < n,\n", "y_ptr + i, helper(x), mask=i < n"),
        _KERNEL.replace("def main", "\n\n\ndef main").replace("@kernel\n\n\n\n", "@kernel\n"),
    ]
    for text in same:
        assert hashed(module(_HEAD + _HELPER + text)) == base
    assert hashed(module(_HEAD.replace("UNUSED = 1", "UNUSED = 2") + _HELPER + _KERNEL)) == base
    assert hashed(module(_HEAD + "\n\n" + _KERNEL + _HELPER)) == base


def test_everything_else_counts(module):
    texts = [
        _HEAD + _HELPER + _KERNEL,
        _HEAD + _HELPER + _KERNEL.replace("other=0.0", "other=-0.0"),
        _HEAD + _HELPER + _KERNEL.replace("other=0.0", "other=0"),
        _HEAD + _HELPER + _KERNEL.replace("other=0.0", "other=False"),
        _HEAD + _HELPER + _KERNEL.replace("i < n,\n", "i <= n,\n"),
        _HEAD + _HELPER + _KERNEL.replace("BLOCK: tl.constexpr", "BLOCK"),
        _HEAD + _HELPER + _KERNEL.replace("y_ptr, n", "n, y_ptr"),
        _HEAD + _HELPER + _KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 4"),
        _HEAD + _HELPER + _KERNEL.rstrip() + "\n    tl.debug_barrier()\n",
        _HEAD + _HELPER.replace("x * FACTOR", "FACTOR * x") + _KERNEL,
        _HEAD.replace("FACTOR = 2.0", "FACTOR = 4.0") + _HELPER + _KERNEL,
        _HEAD.replace("FACTOR = 2.0", "FACTOR = 2") + _HELPER + _KERNEL,
    ]
    assert len({hashed(module(text)) for text in texts}) == len(texts)


def test_one_kernel_from_another_module_counts_too(module):
    helper = module(_HEAD + _HELPER)
    other = module(_HEAD + _HELPER.replace("x *", "2 * x *"))
    made = [module(_HEAD + _KERNEL) for _ in range(2)]
    made[0].helper, made[1].helper = helper.helper, other.helper
    assert hashed(made[0]) != hashed(made[1])
    assert set(made[0].main_kernel.uses) == {"helper"}


def test_what_a_kernel_cannot_use_is_named(module):
    bad = module(_HEAD + _HELPER + _KERNEL.replace("helper(x)", "math.exp(x)"))
    with pytest.raises(CompileError, match=r"reads math, which it cannot use; got module"):
        hashed(bad)


def test_a_local_name_may_be_that_of_a_module(module):
    text = _KERNEL.replace("x = tl.load", "math = tl.load").replace("helper(x)", "helper(math)")
    assert "math" not in module(_HEAD + _HELPER + text).main_kernel.uses


def test_functions_inside_functions():
    def make(value: float) -> KernelFunction:
        @kernel
        def inner(x):
            return x * value if x > math_constant else x

        return inner

    math_constant = math.pi
    assert make(1.0).source_hash == make(1.0).source_hash
    assert make(1.0).source_hash != make(2.0).source_hash


def test_a_kernel_without_a_source_is_refused():
    scope = {"kernel": kernel}
    exec("@kernel\ndef nowhere(x):\n    return x\n", scope)
    with pytest.raises((CompileError, OSError)):
        _ = scope["nowhere"].source_hash
