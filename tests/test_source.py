import pytest

from nbxtensor.compiler.source import kernel, tl


@kernel
def twice(x):
    return x * 2.0


def test_a_kernel_cannot_be_called():
    with pytest.raises(TypeError, match="launch"):
        twice(1.0)


def test_stand_in_gives_names():
    assert tl.constexpr == "tl.constexpr"
