"""Damaged tables of certificates: every line is read or refused, whatever its bytes are; the other lines hold.

As a program: reads many mutations of a table and tells what came of them.

    PYTHONPATH=src:tests python tests/test_table_damage.py 100000
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from nbxtensor.base.errors import CertificateError
from nbxtensor.certify.run import Outcome, calls_of
from nbxtensor.certify.store import united
from nbxtensor.certify.verify import Verified, as_json
from nbxtensor.cli.tables import all_tables
from nbxtensor.tuning import log, tables
from nbxtensor.tuning.certificate import Certificate, parse, read_table, readable, write_table
from nbxtensor.tuning.key import LaunchKey

CALLS = ["softmax(float32[65536, 1024], axis=0)", "astype(int8[40:1, 5:40], bool)"]
GOOD = Certificate(
    "softmax|softmax|count=65536,length=1024|-|float32|sm_90",
    {"rows": 4, "form": "looped", "safe": False},
    False,
    {"0123456789abcdef": "fedcba9876543210"},
    {"bits": "default cpu", "calls": CALLS, "error": 0.25, "proved": "8 of 8", "runs": 61},
    {"us": 69.5, "warm": 60.25, "default": 116.0, "default_warm": 110.5, "spread": 0.01, "timed": 8},
    "triton 3.6.0",
    "NVIDIA H200, CUDA 12.8",
)
CONTENT: dict[str, Any] = json.loads(GOOD.line())
KEY = LaunchKey("softmax", "softmax", (), (), (), "sm_90")
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 2**63, 10**400, -0.0, 0.5, -2.5, 1e308, "", "7", "\ud800", "a\nb", "\x00"),
    *([], [1], [[]], [[[]]], {}, {"a": 1}, {"dtype": 3}),
)


def strange_texts() -> Iterator[str]:
    yield from ("NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "[" * 3000, '"\\ud800"', "nul", "{}{}")


def use(one: Certificate) -> None:
    """Everything that is done with a certificate which was read."""
    with suppress(CertificateError):
        for call in calls_of(one):
            str(call).encode()
    table = write_table([united(GOOD, one), united(one, GOOD), united(one, one)])
    assert read_table(table, "again")
    Outcome(KEY, "chosen", certificate=one).line.encode()
    json.dumps(as_json(Verified(one, "proved"))).encode()
    json.dumps(dict(one.time), allow_nan=False)
    f"{one.key} {one.compiler} {one.driver}".encode()
    one.covers(one.key)


def attempt(line: str) -> str:
    """What becomes of a line: it is read, and then usable, or refused."""
    try:
        one = parse(line, "here")
    except CertificateError:
        return "refused"
    use(one)
    return "read"


# One entry of the wrong type


def entries(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value in a JSON document."""
    if path:
        yield path
    for at in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from entries(value[at], (*path, at))


def changed(path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    content = json.loads(GOOD.line())
    *above, last = path
    inner = content
    for at in above:
        inner = inner[at]
    inner[last] = new
    return content


@pytest.mark.parametrize("path", list(entries(CONTENT)), ids=lambda path: ".".join(map(str, path)))
def test_an_entry_of_another_kind_is_damage_or_does_no_harm(path: tuple[Any, ...]) -> None:
    for value in STRANGE:
        attempt(json.dumps(changed(path, value)))
    marked = json.dumps(changed(path, "@"))
    for text in strange_texts():
        attempt(marked.replace('"@"', text))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("proof", "error"), "0.5"), (("proof", "error"), True), (("proof", "error"), -1.0), (("proof", "runs"), "61"),
        (("proof", "calls"), {}), (("proof", "calls"), [["exp"]]), (("proof", "bits"), None), (("proof", "proved"), 8),
        (("time", "us"), "fast"), (("time", "us"), None), (("time", "spread"), []), (("time", "default"), 10**400),
        (("setting", "rows"), 4.5), (("setting", "form"), ["looped"]), (("artifacts", "0123456789abcdef"), 7),
        (("driver",), "\ud800"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_damage(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(CertificateError, match=r"line 2 of somewhere"):
        read_table(f"{GOOD.line()}\n{json.dumps(changed(path, value))}\n", "somewhere")


def test_what_is_whole_is_read() -> None:
    assert parse(GOOD.line(), "here") == GOOD
    assert attempt(json.dumps(changed(("proof", "error"), None))) == "read"
    assert attempt(json.dumps(changed(("time",), {}))) == "read"
    assert attempt(json.dumps(changed(("proof", "calls", 0), "add(float32[3], -inf)"))) == "read"  # a scalar may be
    for path in tables.SHIPPED.glob("*/*.json"):
        found, damaged = readable(path.read_text(), str(path))
        assert found
        assert not damaged


# The other lines


def test_the_other_lines_of_a_damaged_table_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_TABLES", str(tmp_path))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")
    path = tmp_path / "sm_90" / "softmax.json"
    path.parent.mkdir()
    wrong = changed(("proof", "error"), "much") | {"key": "another"}
    path.write_text(f"{json.dumps(wrong)}\n{GOOD.line()}\nhalf a li\n")
    tables.forget()
    with pytest.warns(tables.TableWarning, match=r"proof.error in line 1 of .*softmax.json .*\(and 1 more line\)"):
        assert tables.certificates("sm_90", "softmax", GOOD.key) == [GOOD]
    assert tables.certificates("sm_90", "softmax", "another") == []
    tables.forget()
    (table,) = all_tables()
    assert "proof.error in line 1" in table.error
    assert table.certificates == [GOOD]


def test_a_damaged_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path))
    whole = {"key": "k", "status": "stale", "reason": "r", "command": "c", "count": 2}
    lines = [json.dumps(whole | {name: value}) for name in whole for value in (None, 1.5, [], {"a": 1})]
    (tmp_path / "uncertified.jsonl").write_text("\n".join([*lines, "[" * 100_000, json.dumps(whole)]))
    assert log.read_log() == [log.OpenKey("k", "stale", "r", "c", 2)]


# Mutations


def mutated(rng: random.Random) -> str:
    """A line with one to four things changed: bytes, or values of its JSON."""
    if rng.random() < 0.5:
        content = json.loads(GOOD.line())
        for _ in range(rng.randint(1, 3)):
            *above, last = rng.choice(list(entries(content)))
            inner = content
            for at in above:
                inner = inner[at]
            if isinstance(inner, dict) and rng.random() < 0.3:
                inner[rng.choice(("", "key", "us", "error", "x" * 300))] = inner.pop(last)
            else:
                inner[last] = deepcopy(rng.choice(STRANGE))
        return json.dumps(content)
    content = bytearray(GOOD.line().encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content))
        kind = rng.randrange(4)
        if kind == 0:
            content[at] = rng.randrange(256)
        elif kind == 1:
            del content[at : at + rng.randint(1, 40)]
        elif kind == 2:
            content[at:at] = rng.choice((b"0", b'"', b"\\", b"{", b"]", b",", b"1e999", b"NaN", b"\\ud800", b"\n"))
        else:
            content[at:at] = content[rng.randrange(len(content)) :][:50]
        if not content:
            break
    return content.decode(errors="replace")


def mutations(count: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(count):
        text = mutated(rng)
        assert len(readable(text, "here")[0]) <= len(text.splitlines())
        found[attempt(text)] += 1
    return found


def test_2000_mutations() -> None:
    found = mutations(2000, 0)
    assert found["read"] > 20
    assert found["refused"] > 1000


if __name__ == "__main__":
    print(dict(mutations(int(sys.argv[1]), 1)))
