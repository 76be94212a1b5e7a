"""Files that are written whole or not at all."""

import contextlib
import os
import stat
from pathlib import Path


def target_of(path: Path) -> Path:
    """The file that is meant: where links lead, if `path` is one or lies below one."""
    return Path(os.path.realpath(path))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it and rename it.

    Where `path` is a link it stays one, and what it leads to is written. A file that was there keeps its permissions.

    Raises
    ------
    OSError
        It cannot be written, and is what it was; nothing else is left behind.
    """
    target = target_of(path)
    temporary = target.with_name(f".nbx-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            with contextlib.suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
