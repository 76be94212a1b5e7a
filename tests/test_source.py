from nbxtensor.compiler.source import kernel, tl


@kernel
def twice(x):
    return x * 2.0


def test_a_kernel_cannot_be_called():
    try:
        twice(1.0)
    except TypeError as error:
        assert "launch" in str(error)
    else:
        raise AssertionError


def test_stand_in_gives_names():
    assert tl.constexpr == "tl.constexpr"
