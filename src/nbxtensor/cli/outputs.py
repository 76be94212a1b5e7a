"""Whether files can be written where they are to be, asked before the work that makes them; nothing is left behind."""

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from nbxtensor.base.errors import ArgumentError
from nbxtensor.base.files import target_of
from nbxtensor.base.knobs import tables_dir
from nbxtensor.certify.store import LOCK, table_path

_PROBE = bytes(64 << 10)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_error(folder: Path) -> OSError | None:
    """What keeps files from being written to a folder; a trial leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_PROBE)
            file.flush()
    except OSError as error:
        return error
    return None


def existing(place: Path) -> Path:
    """`place`, or the closest folder above it that exists: the one that decides whether it can be made."""
    for path in (place, *place.parents):
        if os.path.lexists(path):
            return path
    return place


def _refuse(function: str, path: Path, reason: str, mend: str) -> ArgumentError:
    return ArgumentError(function, f"{path} cannot be written: {reason}", mend=mend)


def _require_writable(function: str, path: Path, folder: Path, elsewhere: str) -> None:
    if not folder.is_dir():
        lost = folder.is_symlink() and not folder.exists()
        raise _refuse(function, path, f"{folder} is {'a link that leads nowhere' if lost else 'no folder'}", elsewhere)
    error = write_error(folder)
    if error is not None:
        reason = f"{error.strerror or error} ({folder})"
        raise _refuse(function, path, reason, f"free some space, or {elsewhere}" if error.errno in _FULL else elsewhere)


def require_folder(folder: Path, function: str, elsewhere: str) -> None:
    """Refuse a folder in which no file can be made; it need not exist yet.

    Parameters
    ----------
    elsewhere
        How another one is named.

    Raises
    ------
    ArgumentError
        It, or what lies above it, is no folder, or cannot be written, or its disk is full.
    """
    _require_writable(function, folder, existing(folder.absolute()), elsewhere)


def require_file(path: Path, function: str, elsewhere: str) -> None:
    """Refuse a file that cannot be made or replaced; its folder must exist.

    Raises
    ------
    ArgumentError
        As for `require_folder`; or it is a folder, or its folder does not exist.
    """
    target = target_of(path)
    try:
        os.lstat(target)  # a name may be too long
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise _refuse(function, path, error.strerror or str(error), elsewhere) from error
    if target.is_dir():
        raise _refuse(function, path, "it is a folder", elsewhere)
    if not os.path.lexists(target.parent):
        raise _refuse(function, path, f"there is no folder {target.parent}", f"make that folder, or {elsewhere}")
    _require_writable(function, path, target.parent, elsewhere)


def tables_folder(chosen: Path | None, function: str) -> Path:
    """The folder of tables that was chosen, or that of NBX_TABLES.

    Raises
    ------
    ArgumentError
        None was chosen, and there is no home that NBX_TABLES could be in.
    """
    if chosen is not None:
        return chosen
    try:
        return tables_dir.get()
    except RuntimeError as error:
        raise ArgumentError(
            function, "there is no home for tables", mend="name a folder: --output, NBX_TABLES"
        ) from error


def require_tables(folder: Path, arch: str, operators: Iterable[str], function: str) -> None:
    """Refuse a folder of tables that the tables of these operators cannot be written to.

    Raises
    ------
    ArgumentError
        As for `require_folder`, or a table is a folder, or the lock beside the tables is that of another user.
    """
    elsewhere = "name another folder: --output, NBX_TABLES"
    require_folder(folder / arch, function, elsewhere)
    lock = folder / arch / LOCK
    if lock.exists() and not os.access(lock, os.W_OK):
        raise _refuse(function, lock, os.strerror(errno.EACCES), f"ask its owner for the right to, or {elsewhere}")
    for operator in sorted(set(operators)):
        path = table_path(folder, arch, operator)
        if path.is_symlink() or path.is_dir():
            require_file(path, function, elsewhere)
