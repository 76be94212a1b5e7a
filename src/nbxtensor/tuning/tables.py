"""Where certificates are found: the user's tables, packs, and the tables that are shipped.

A table is ``<arch>/<operator>.json``, one certificate a line. Of several certificates for a key the first place
counts, in this order: the folder of NBX_TABLES (by default ``tables`` in the cache folder), packs in use, the package.
"""

import errno
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbxtensor.base.errors import CertificateError
from nbxtensor.base.knobs import tables_dir
from nbxtensor.base.locks import ForkLock
from nbxtensor.base.text import counted
from nbxtensor.compiler import packs
from nbxtensor.tuning.certificate import Certificate, readable

SHIPPED = Path(__file__).parent / "tables"
_found: dict[tuple[str, str], dict[str, dict[str, Certificate]]] = {}
_lock = ForkLock()


class TableWarning(UserWarning):
    """A table, or a line of one, cannot be read; its keys count as uncertified."""


def folders() -> tuple[Path, ...]:
    """Folders that hold tables, the one that counts first at the front."""
    try:
        return tables_dir.get(), SHIPPED
    except RuntimeError:  # no such thing as a home
        return (SHIPPED,)


def _texts(arch: str, operator: str) -> Iterator[tuple[str, str]]:
    """(where, text) of every table of an operator."""
    *own, shipped = (folder / arch / f"{operator}.json" for folder in folders())
    for path in own:
        yield from _text(path)
    for pack in packs.in_use():
        content = pack.certificates().get(f"{arch}/{operator}.json")
        if content is not None:
            yield f"{pack.path}: {arch}/{operator}.json", content.decode(errors="replace")
    yield from _text(shipped)


def _text(path: Path) -> Iterator[tuple[str, str]]:
    try:
        yield str(path), read_file(path)
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        warnings.warn(f"{path} cannot be read ({error})", TableWarning, stacklevel=7)


def read_file(path: Path) -> str:
    """The text of a table; an OSError for what is no plain file, which might never end or never begin."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    with open(handle, encoding="utf-8") as file:
        return file.read()


def operators(arch: str) -> list[str]:
    """Names of the operators that have tables for an architecture."""
    names = {path.stem for folder in folders() for path in (folder / arch).glob("*.json")}
    packed = {name for pack in packs.in_use() for name in pack.certificates() if name.startswith(f"{arch}/")}
    return sorted(names | {Path(name).stem for name in packed})


def named_tables(arch: str, operator: str) -> dict[str, dict[str, Certificate]]:
    """Where -> table of an operator, those that count first at the front; read once for each process."""
    found = _found.get((arch, operator))
    if found is None:
        with _lock:
            found = {}
            for where, text in _texts(arch, operator):
                found[where], damaged = readable(text, where)
                if damaged:
                    warnings.warn(damage(damaged), TableWarning, stacklevel=6)
            _found[arch, operator] = found
    return found


def damage(errors: Sequence[CertificateError]) -> str:
    """What is wrong with a table whose damaged lines gave these errors; the other lines hold."""
    more = f" (and {counted(len(errors) - 1, 'more line')})" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"


def certificates(arch: str, operator: str, key: str) -> list[Certificate]:
    """What was proved for a key, the certificate that counts first at the front."""
    return [table[key] for table in named_tables(arch, operator).values() if key in table]


def forget() -> None:
    """Read the tables again when they are next asked for."""
    _found.clear()
