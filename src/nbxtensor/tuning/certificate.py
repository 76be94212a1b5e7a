"""Certificates: what was proved and measured for one launch key, as one line of JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import sha256
from typing import Any, cast

from nbxtensor.base.errors import CertificateError
from nbxtensor.device.artifact import Artifact

Setting = Mapping[str, "bool | int | str"]
DIGITS = 16
"""Hexadecimal digits kept of each hash: 64 bits, so that a chance match is out of the question."""


def encode(setting: object) -> dict[str, Any]:
    """A setting (a frozen dataclass of plain values, or a tuple of them) as JSON values."""
    if is_dataclass(setting):
        return {f.name: getattr(setting, f.name) for f in fields(setting)}
    values = cast("tuple[Any, ...]", setting if isinstance(setting, tuple) else (setting,))
    return {str(i): v for i, v in enumerate(values)}


def binary_hash(artifact: Artifact) -> str:
    """Hash of the compiled code."""
    return sha256(artifact.binary).hexdigest()[:DIGITS]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A setting that was proved for a launch key.

    Attributes
    ----------
    key
        The launch key, as text.
    setting
        The setting, encoded.
    tie
        Whether it is the declared default, which nothing beat by more than the noise.
    artifacts
        Key -> hash of the code (16 digits each) of every artifact that was proved.
    proof
        The ``calls`` that were proved, as text; how many ``runs``; the largest ``error`` as a part of the bound (None:
        no reference is stated); what ``bits`` were compared with; how many candidates were ``proved``.
    time
        Microseconds of this setting (``us``, ``warm``) and of the default (``default``, ``default_warm``); their
        ``spread``; how many settings were ``timed``.
    compiler, driver
        What compiled and ran it.
    """

    key: str
    setting: Setting
    tie: bool
    artifacts: Mapping[str, str]
    proof: Mapping[str, Any]
    time: Mapping[str, Any]
    compiler: str
    driver: str

    def line(self) -> str:
        """The certificate as a line: the same text for the same content."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def covers(self, key: str, code: str | None = None) -> bool:
        """Whether the artifact `key` (and its code, if its hash is given) is among those that were proved."""
        found = self.artifacts.get(key[:DIGITS])
        return found is not None and (code is None or found == code)


_KINDS: dict[str, type] = {
    "key": str, "setting": dict, "tie": bool, "artifacts": dict, "proof": dict, "time": dict, "compiler": str,
    "driver": str,
}  # fmt: skip
_LARGEST = 1e18


def _is_figure(value: object) -> bool:
    """A number that is no bool, at least 0 and finite."""
    return type(value) in (int, float) and 0 <= cast("float", value) < _LARGEST


def _is_plain(value: object) -> bool:
    return type(value) in (bool, int, str)


def _are_texts(value: object) -> bool:
    return type(value) is list and all(type(call) is str for call in cast("list[Any]", value))


_PROOF: dict[str, Callable[[object], bool]] = {
    "bits": lambda value: type(value) is str,
    "calls": _are_texts,
    "error": lambda value: value is None or _is_figure(value),
    "proved": lambda value: type(value) is str,
    "runs": _is_figure,
}


def _wrong(values: Mapping[str, Any]) -> Iterator[str]:
    """Names of the entries that have the wrong type, of a certificate whose fields have the right ones."""
    yield from (f"setting.{name}" for name, value in values["setting"].items() if not _is_plain(value))
    yield from (f"artifacts.{name}" for name, value in values["artifacts"].items() if type(value) is not str)
    yield from (f"time.{name}" for name, value in values["time"].items() if not _is_figure(value))
    proof: Mapping[str, Any] = values["proof"]
    yield from (f"proof.{name}" for name, fits in _PROOF.items() if name in proof and not fits(proof[name]))


def parse(line: str, where: str) -> Certificate:
    """The certificate on a line; `where` is named in errors.

    Raises
    ------
    CertificateError
        The line is not one.
    """
    try:
        content = json.loads(line)
        if "\\u" in line:
            json.dumps(content, ensure_ascii=False).encode()  # halves of a pair are no text, and cannot be printed
    except (ValueError, RecursionError) as error:
        raise CertificateError("read certificates", f"{where} is not JSON", got=line[:80]) from error
    if not isinstance(content, dict) or set(cast("dict[str, Any]", content)) != set(_KINDS):
        raise CertificateError("read certificates", f"{where} is not a certificate", got=line[:80], allowed=_KINDS)
    values = cast("dict[str, Any]", content)
    for name, kind in _KINDS.items():
        if type(values[name]) is not kind:
            problem = f"{name} in {where} has the wrong type"
            raise CertificateError("read certificates", problem, got=type(values[name]).__name__, allowed=kind.__name__)
    for name in _wrong(values):
        raise CertificateError("read certificates", f"{name} in {where} has the wrong type or value", got=line[:80])
    return Certificate(**values)


def merged(old: Certificate, new: Certificate) -> Certificate:
    """Two certificates of one key: the artifacts of both if they say the same setting, else the newer one."""
    if old.setting != new.setting:
        return new
    return replace(new, artifacts={**old.artifacts, **new.artifacts})


def read_table(text: str, where: str) -> dict[str, Certificate]:
    """Key -> certificate of a table: one certificate a line. Lines of one key are merged.

    Raises
    ------
    CertificateError
        A line is damaged.
    """
    found, damaged = readable(text, where)
    if damaged:
        one = damaged[0]
        mend = "remove that line, or the table, and certify again"
        raise CertificateError(one.function, one.problem, got=one.got, allowed=one.allowed, mend=mend) from one
    return found


def readable(text: str, where: str) -> tuple[dict[str, Certificate], list[CertificateError]]:
    """What `read_table` gives of the lines that are whole, and what is wrong with the others."""
    found: dict[str, Certificate] = {}
    damaged: list[CertificateError] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                one = parse(line, f"line {number} of {where}")
            except CertificateError as error:
                damaged.append(error)
            else:
                found[one.key] = merged(found[one.key], one) if one.key in found else one
    return found, damaged


def write_table(certificates: Iterable[Certificate]) -> str:
    """The table of these certificates: sorted by key, so that tables merge line by line."""
    by_key: dict[str, Certificate] = {}
    for one in certificates:
        by_key[one.key] = merged(by_key[one.key], one) if one.key in by_key else one
    return "".join(f"{by_key[key].line()}\n" for key in sorted(by_key))
