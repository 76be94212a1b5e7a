"""Writing tables: whole or not at all, beside other processes that write the same ones."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nbxtensor.base.errors import CertificateError
from nbxtensor.base.files import replace_file, target_of
from nbxtensor.compiler.key_lock import Lock, key_lock
from nbxtensor.tuning.certificate import Certificate, merged, read_table, write_table
from nbxtensor.tuning.tables import read_file

MOST_BYTES = 200_000
PATIENCE = 60.0
LOCK = ".lock"
"""File beside tables that those who write them lock."""


def table_path(folder: Path, arch: str, operator: str) -> Path:
    """Where the table of an operator is."""
    return folder / arch / f"{operator}.json"


def read(path: Path) -> dict[str, Certificate]:
    """The certificates of a table by key; none if there is no file.

    Raises
    ------
    CertificateError
        The file is damaged.
    """
    try:
        return read_table(read_file(path), str(path))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        mend = "restore it, or remove it and certify again"
        raise CertificateError("read certificates", f"{path} is not text", mend=mend) from error


def united(old: Certificate, new: Certificate) -> Certificate:
    """Two certificates of one key: what both prove, if they say the same setting, else the newer one."""
    if old.setting != new.setting:
        return new
    proof = {
        **new.proof,
        "calls": sorted({call for one in (old, new) for call in one.proof.get("calls", ())}),
        "error": max((one.proof["error"] for one in (old, new) if one.proof.get("error") is not None), default=None),
    }
    return replace(merged(old, new), proof=proof)


@contextmanager
def _alone(folder: Path, name: str) -> Generator[None]:
    """Keep other certifiers from writing the table for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    key = name.encode().hex().ljust(15, "0")[:15]
    with key_lock(folder / LOCK, key, PATIENCE, shared=True) as lock:
        if lock is Lock.BUSY:
            problem = f"another process has held {folder / LOCK} for {PATIENCE:g} s"
            mend = "end it, or wait; the same command goes on where this one was"
            raise CertificateError("nbxtensor certify", problem, got=name, mend=mend)
        yield


def add(folder: Path, arch: str, operator: str, certificate: Certificate, fresh: bool) -> None:
    """Enter a certificate into its table; what others wrote in the meantime stays.

    Parameters
    ----------
    fresh
        Forget what an older certificate of the key says; else, if it says the same setting, its artifacts stay.

    Raises
    ------
    CertificateError
        The table would be larger than `MOST_BYTES`, or is damaged.
    """
    path = target_of(table_path(folder, arch, operator))  # a link stays, and its lock is that of what it leads to
    with _alone(path.parent, operator):
        found = read(path)
        old = None if fresh else found.get(certificate.key)
        found[certificate.key] = certificate if old is None else united(old, certificate)
        text = write_table(found.values())
        if len(text) > MOST_BYTES:
            raise CertificateError(
                "nbxtensor certify",
                f"{path} would be larger than {MOST_BYTES:,} bytes",
                got=f"{len(text):,} bytes, {len(found)} keys",
                mend="certify fewer shapes or dtypes, or other --output folders for different purposes",
            )
        replace_file(path, text.encode())
