"""The home folder and the kernel cache: whether they can be written, have room, and are whole."""

import errno
import os
import stat
from pathlib import Path

from nbxtensor.base.errors import CacheError
from nbxtensor.base.knobs import cache_bytes, cache_dir
from nbxtensor.base.text import counted
from nbxtensor.cli.checks.core import Check, Machine, explained
from nbxtensor.cli.outputs import existing, write_error
from nbxtensor.cli.show import size

LEAST = 1 << 20
"""Free bytes below which hardly a kernel can be written."""
LITTLE = 64 << 20
ELSEWHERE = "set NBX_CACHE_DIR to a folder that can be written and has room"


def free_space(folder: Path) -> tuple[int, int]:
    """Bytes and files that a user may still make on the file system of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1


def check_home(check: Check, machine: Machine) -> None:
    """The home folder; it matters only where the cache is in it."""
    try:
        home = Path.home()
    except RuntimeError:
        home = None
    elsewhere = "NBX_CACHE_DIR" if os.environ.get("NBX_CACHE_DIR") else "XDG_CACHE_HOME"
    needed = not os.environ.get(elsewhere)
    error = "there is none" if home is None else None
    if home is not None:
        trouble = write_error(home) if home.is_dir() else FileNotFoundError(2, "it does not exist")
        error = None if trouble is None else trouble.strerror or str(trouble)
    if needed and home is not None and error is not None:
        needed = write_error(existing(cache_dir.get().absolute())) is not None
    check.facts = {"home": None if home is None else str(home), "writable": error is None, "needed": needed}
    check.summary = f"{home or 'none'}{' (cannot be written, but nothing is kept there)' if error else ''}"
    if error is not None and needed:
        check.problem(
            f"the home folder {home or ''} cannot be written ({error}), and the kernel cache would be in it", ELSEWHERE
        )


def check_cache(check: Check, machine: Machine) -> None:
    """Whether compiled kernels can be kept."""
    try:
        place, limit = cache_dir.get().absolute(), cache_bytes.get()
    except RuntimeError:
        check.problem("there is no home folder, so kernels are kept in memory only", ELSEWHERE)
        return
    there = existing(place)
    check.facts = {"directory": str(place), "exists": there == place, "limit": limit}
    check.summary = str(place)
    if limit == 0:
        check.warning("NBX_CACHE_BYTES is 0: every process compiles its kernels anew", "unset NBX_CACHE_BYTES")
    if not there.is_dir():
        what = "a link that leads nowhere" if there.is_symlink() and not there.exists() else "not a folder"
        check.problem(f"the kernel cache {place} cannot be made: {there} is {what}", ELSEWHERE)
        return
    folders = [f for f in (there, there / "v1") if f.is_dir()] if there == place else [there]
    for folder in folders:
        error = write_error(folder)
        if error is not None:
            check.problem(
                f"the kernel cache {place} cannot be written ({error.strerror or error}): kernels are kept in memory "
                "only, and every process compiles them anew",
                f"free some space, or {ELSEWHERE}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ELSEWHERE,
            )
            break
    _check_space(check, place, there)
    _check_owner(check, folders if there == place else [])


def _check_space(check: Check, place: Path, there: Path) -> None:
    free, files = free_space(there)
    check.facts |= {"free": free, "free_files": files}
    check.summary += f", {size(free)} free"
    mend = "free some space, or set NBX_CACHE_DIR to a folder that has room"
    if any(finding.status == "problem" for finding in check.findings):
        return
    if free < LEAST or files == 0:
        left = f"{size(free)} left" if files else "no file can be made"
        check.problem(f"the disk of the kernel cache {place} is full ({left})", mend)
    elif free < LITTLE:
        check.warning(f"the disk of the kernel cache {place} is nearly full ({size(free)} left)", mend)


def _check_owner(check: Check, folders: list[Path]) -> None:
    """Kernels in the cache are native code: whoever may write there decides what runs."""
    for folder in folders:
        facts = folder.stat()
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            check.warning(
                f"others may write to {folder}, and what is in it is run as native code", f"chmod go-w '{folder}'"
            )
        elif facts.st_uid not in (os.geteuid(), 0):
            check.warning(
                f"{folder} belongs to another user, and what is in it is run as native code",
                "set NBX_CACHE_DIR to a folder of your own",
            )


def check_entries(check: Check, machine: Machine) -> None:
    """Whether the compiled kernels are as they were written."""
    try:
        scan = machine.scan
    except CacheError as error:
        check.problem(explained(error), "see the check of the cache")
        return
    check.facts = {
        "entries": scan.entries,
        "bytes": scan.nbytes,
        "read": scan.read,
        "damaged": [str(path) for path in scan.damaged],
    }
    check.summary = f"{counted(scan.entries, 'kernel')}, {size(scan.nbytes)}"
    if scan.read < scan.entries:
        check.summary += f" (the {scan.read} most recently used were read)"
    if scan.damaged:
        count = counted(len(scan.damaged), "entry of the kernel cache is", "entries of the kernel cache are")
        check.problem(
            f"{count} damaged, such as {scan.damaged[0]}",
            "rm that file; it is compiled again when it is needed" if len(scan.damaged) == 1
            else "nbxtensor cache clear; what is needed is compiled again",
        )  # fmt: skip
