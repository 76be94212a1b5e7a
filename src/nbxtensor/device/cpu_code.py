"""Executable memory: machine code is written while the pages are writable, and runs once they no longer are."""

import ctypes
import mmap

from nbxtensor.base.errors import DeviceError
from nbxtensor.device.elf import ElfObject, LinkedImage

_libc = ctypes.CDLL(None, use_errno=True)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


EXTERNALS: dict[str, int] = {name: _address(getattr(_libc, name)) for name in ("memcpy", "memmove", "memset")}
"""What kernels may call outside themselves."""


class CodeBlock:
    """Pages with code, readable and executable; unmapped with the last reference.

    Attributes
    ----------
    address
        Where the block begins.
    """

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(
            -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
        anchor = ctypes.c_char.from_buffer(self._pages)
        self.address = ctypes.addressof(anchor)
        self._anchor = anchor

    def seal(self, code: bytes | bytearray) -> None:
        """Write `code` at the start of the block and make it executable."""
        self._pages[: len(code)] = bytes(code)
        if _mprotect(self.address, len(self._pages), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            number = ctypes.get_errno()
            raise DeviceError(
                "load",
                "the system refuses to make memory executable",
                got=f"errno {number}",
                mend="a security policy (SELinux execmem, systemd MemoryDenyWriteExecute) forbids it",
            )


def place(image: LinkedImage) -> CodeBlock:
    """`image` in executable memory."""
    block = CodeBlock(image.size)
    block.seal(image.place(block.address))
    return block


def load_object(binary: bytes, symbol: str) -> tuple[CodeBlock, int]:
    """Load a relocatable object; returns its pages and the address of `symbol`."""
    image = ElfObject(binary).link(EXTERNALS)
    offset = image.offset(symbol)
    block = place(image)
    return block, block.address + offset
