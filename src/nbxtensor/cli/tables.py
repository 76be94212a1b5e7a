"""Every table of certificates that launches may look into, whether it can be read or not."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbxtensor.tuning import tables
from nbxtensor.tuning.certificate import Certificate, readable


@dataclass(frozen=True, slots=True)
class Table:
    """One file of certificates, or a folder that cannot be listed; `error` says what is wrong with it.

    `certificates` are those of the lines that can be read.
    """

    folder: Path
    arch: str
    operator: str
    nbytes: int = 0
    error: str = ""
    certificates: list[Certificate] = field(default_factory=list[Certificate])

    @property
    def facts(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "folder": str(self.folder),
            "arch": self.arch,
            "operator": self.operator,
            "certificates": len(self.certificates),
            "bytes": self.nbytes,
            "error": self.error or None,
        }


def _table(folder: Path, path: Path) -> Table:
    arch, operator = path.parent.name, path.stem
    try:
        text = tables.read_file(path)
    except OSError as error:
        return Table(folder, arch, operator, 0, f"{path} cannot be read ({error.strerror or error})")
    except UnicodeDecodeError as error:
        return Table(folder, arch, operator, len(error.object), f"{path} is not text ({error})")
    found, damaged = readable(text, str(path))
    error = tables.damage(damaged) if damaged else ""
    return Table(folder, arch, operator, len(text.encode()), error, list(found.values()))


def all_tables() -> list[Table]:
    """The tables in use, those that count first at the front."""
    found: list[Table] = []
    for folder in tables.folders():
        try:
            arches = sorted(path for path in folder.iterdir() if path.is_dir())
            paths = [path for arch in arches for path in sorted(arch.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(Table(folder, "", "", 0, f"{folder} cannot be listed ({error.strerror or error})"))
            continue
        found += [_table(folder, path) for path in paths]
    return found
