"""The log of `make sweep`: what it says of each operator's file and settings module, and whether that is so still."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.variants import Variant


@dataclass(slots=True)
class Present:
    """What a file launches now.

    Attributes
    ----------
    kernels
        Source hash of each kernel and kernel function.
    jobs
        Per target, hash of everything that is compiled: sources, argument types, settings.
    """

    kernels: dict[str, str] = field(default_factory=dict[str, str])
    jobs: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What compiling one kernel for one target gave.

    Attributes
    ----------
    problems
        Everything that is not as it must be; a failure to compile is one.
    """

    arch: str
    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0
    problems: tuple[str, ...] = ()


def summary(pairs: Iterator[tuple[Variant, Outcome]], present: dict[str, Present], extent: str) -> dict[str, Any]:
    """What the log says about each file."""
    files: dict[str, Any] = {
        file: {
            "extent": extent,
            "kernels": dict(sorted(one.kernels.items())),
            "targets": {
                arch: {"kernels": 0, "failed": 0, "registers": 0, "stack": 0, "shared": 0, "jobs": jobs}
                for arch, jobs in sorted(one.jobs.items())
            },
            "problems": [],
        }
        for file, one in present.items()
    }
    for variant, outcome in pairs:
        for file in variant.files:
            entry = files[file]
            figures = entry["targets"][outcome.arch]
            figures["kernels"] += 1
            figures["failed"] += any("does not compile" in p or "has no TTIR" in p for p in outcome.problems)
            for name, value in (
                ("registers", outcome.registers),
                ("stack", outcome.stack_bytes),
                ("shared", outcome.shared_bytes),
            ):
                figures[name] = max(figures[name], value)
            entry["problems"] += [f"{outcome.arch}: {variant.label}: {p[:400]}" for p in outcome.problems]
    for entry in files.values():
        entry["problems"].sort()
    return dict(sorted(files.items()))


def write(path: Path, content: dict[str, Any]) -> None:
    """JSON with the innermost objects on one line each."""
    text = json.dumps(content, indent=1)
    text = re.sub(r'\{\n\s*"kernels": \d[^{}]*\}', lambda m: re.sub(r"\s*\n\s*", " ", m[0]), text)
    path.write_text(text + "\n")


def versions() -> dict[str, str]:
    """Versions of the compilers."""
    return {p: metadata.version(p) for p in ("triton", "llvmlite")}


def stale(log: dict[str, Any], present: dict[str, Present], extent: str | None = None) -> dict[str, str]:
    """The files that `log` does not cover as they are, to that extent if one is given, and why not."""
    files: dict[str, Any] = log.get("files", {})

    def reason(file: str, now: Present) -> str:
        entry = files.get(file)
        if entry is None:
            return "new"
        if extent not in (None, entry.get("extent")):
            return f"the log has {entry.get('extent')}"
        if changed := sorted(k for k, h in now.kernels.items() if entry["kernels"].get(k) != h):
            return f"other kernels: {', '.join(k.rsplit('.', 1)[-1] for k in changed)}"
        targets: dict[str, Any] = entry["targets"]
        if changed := sorted(arch for arch, jobs in now.jobs.items() if targets.get(arch, {}).get("jobs") != jobs):
            where = "every target" if len(changed) == len(now.jobs) else ", ".join(changed)
            return f"other settings or arguments on {where}"
        return ""

    found = {file: reason(file, now) for file, now in sorted(present.items())}
    return {file: why for file, why in found.items() if why}
