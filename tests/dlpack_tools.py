"""A foreign producer of DLPack capsules for tests."""


class Producer:
    """Some other library's tensor: only the protocol is visible."""

    def __init__(self, x, **fixed):
        self._x = x
        self._fixed = fixed

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**(options | self._fixed))

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


class OldProducer(Producer):
    """From before DLPack 1: no keyword but stream, capsules without a version."""

    def __dlpack__(self, stream=None):
        return self._x.__dlpack__()
