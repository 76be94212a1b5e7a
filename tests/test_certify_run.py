"""Choosing among proved settings, tables on disk, resuming, and the two verbs."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from certify_ops import CANDIDATES, SCALE, Setting, declared, scale, timed
from nbxtensor.base import dtypes
from nbxtensor.base.errors import ArgumentError, CertificateError
from nbxtensor.certify import run as certify_run
from nbxtensor.certify import store
from nbxtensor.certify.asked import example_of
from nbxtensor.certify.census import Census, Entry
from nbxtensor.certify.run import Certifier, Outcome, certify
from nbxtensor.certify.timing import Timed
from nbxtensor.certify.verify import verify
from nbxtensor.cli.app import run
from nbxtensor.cli.certify import progress, seconds_of
from nbxtensor.device import get
from nbxtensor.kernel.call_text import Example, plain
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tuning import tables
from nbxtensor.tuning.certificate import Certificate, encode, read_table
from nbxtensor.tuning.choose import forget_uses, uses
from nbxtensor.tuning.key import launch_key

Run = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of tables, with no plans made before and none left after."""
    monkeypatch.setenv("NBX_TABLES", str(tmp_path / "tables"))
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "none")

    def forget() -> None:
        tables.forget()
        forget_plans()
        forget_uses()

    forget()
    with declared():
        yield tmp_path / "tables"
    forget()


def entry_of(device: str, example: Example) -> Entry:
    census = Census(get(device))
    census.add(example)
    return next(iter(census.entries.values()))


def scale_entry(device: str, *settings: Setting, n: int = 1000) -> Entry:
    CANDIDATES[SCALE] = list(settings) or [Setting(256), Setting(128)]
    return entry_of(device, Example(SCALE, (plain((n,), dtypes.float32),)))


def certified(certifier: Certifier, entry: Entry) -> Outcome:
    return certifier.certify(certifier.prepare(entry))


def table_of(folder: Path, device: str, operator: str = SCALE) -> dict[str, Certificate]:
    path = store.table_path(folder, get(device).target.arch, operator)
    return read_table(path.read_text(), str(path))


def certificate(key: str = "a", setting: int = 1, **changes: Any) -> Certificate:
    content: dict[str, Any] = {
        "key": key, "setting": {"block": setting}, "tie": True, "artifacts": {"00": "11"},
        "proof": {"calls": [], "error": 0.0}, "time": {}, "compiler": "c", "driver": "d",
    }  # fmt: skip
    return Certificate(**(content | changes))


@pytest.mark.parametrize(("again", "verdict"), [(0.8, "chosen"), (1.0, "tie")])
def test_a_winner_must_win_again(
    again: float, verdict: str, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, bool]] = []

    def series(key: Any, settings: Any, example: Any, device: Any, clock: Any, elsewhere: bool = False) -> list[Timed]:
        seen.append((settings, elsewhere))
        return [timed(1.0), timed(again)] if elsewhere else [timed(1.0), timed(1.1), timed(0.8)]

    monkeypatch.setattr(certify_run, "timed", series)
    settings = Setting(256), Setting(64), Setting(128)
    assert certified(Certifier(get(device), folder), scale_entry(device, *settings)).verdict == verdict
    assert [(list(s), e) for s, e in seen] == [(list(settings), False), ([settings[0], settings[2]], True)]
    assert table_of(folder, device).popitem()[1].time["us"] == (0.8e6 if verdict == "chosen" else 1e6)


# Certificates are used


def test_a_certified_setting_runs_and_is_trusted(device: str, folder: Path) -> None:
    entry = scale_entry(device, Setting(256, "slow"), Setting(128))
    outcome = certified(Certifier(get(device), folder), entry)
    assert outcome.verdict in ("chosen", "tie")
    one = table_of(folder, device)[str(entry.key)]
    assert one.setting == encode(outcome.setting)
    assert one.proof["bits"] == ("default" if device == "cpu" else "default cpu")
    assert set(one.time) >= {"us", "default", "warm", "spread"}
    tables.forget()
    x = nbx.asarray(np.arange(1000, dtype=np.float32), device=device)
    forget_uses()
    np.testing.assert_array_equal(scale(x).numpy(), np.arange(1000) * 2)
    assert [(u.status, u.setting) for u in uses() if u.key.operator == SCALE] == [("certified", outcome.setting)]


def test_wrong_settings_are_named_and_a_wrong_default_is_refused(device: str, folder: Path) -> None:
    certifier = Certifier(get(device), folder)
    found = certified(certifier, scale_entry(device, Setting(256), Setting(64, "half the stores")))
    assert found.verdict == "tie"
    assert [s.wrong for s, _ in found.thrown_out] == ["half the stores"]
    found = certified(certifier, scale_entry(device, Setting(256, "scale"), n=77))
    assert found.verdict == "refused"
    assert len(table_of(folder, device)) == 1


def test_what_is_covered_is_skipped_until_asked_again(device: str, folder: Path) -> None:
    entry = scale_entry(device)
    certifier = Certifier(get(device), folder)
    assert certified(certifier, entry).verdict in ("chosen", "tie")
    assert certified(certifier, entry).verdict == "covered"
    assert certified(Certifier(get(device), folder, again=True), entry).verdict in ("chosen", "tie")


def test_a_second_operator_extends_the_certificate_of_a_shared_key(device: str, folder: Path) -> None:
    certifier = Certifier(get(device), folder)
    first, second = (entry_of(device, example_of(name, [(5000,)])) for name in ("abs", "negative"))
    assert first.key == second.key
    setting = certified(certifier, first).setting
    assert certifier.known(second).status == "partly"
    found = certified(certifier, second)
    assert (found.verdict, found.setting) == ("extended", setting)
    one = table_of(folder, device, "pointwise")[str(first.key)]
    assert set(one.proof["calls"]) == {"abs(float32[5000])", "negative(float32[5000])"}
    assert certifier.known(first).status == certifier.known(second).status == "certified"


def test_a_certificate_of_other_code_or_settings_is_stale(device: str, folder: Path) -> None:
    certifier = Certifier(get(device), folder)
    entry = scale_entry(device)
    certified(certifier, entry)
    assert certifier.known(scale_entry(device, Setting(32))).status == "stale"
    path = store.table_path(folder, entry.key.arch, SCALE)
    (one,) = table_of(folder, device).values()
    other = Certificate(**{**{n: getattr(one, n) for n in one.__slots__}, "artifacts": {"0" * 16: "1" * 16}})
    path.write_text(other.line() + "\n")
    assert certifier.known(scale_entry(device)).status == "stale"
    assert verify(other, get(device)).verdict == "stale"
    assert certified(certifier, scale_entry(device)).verdict in ("chosen", "tie")
    assert "0" * 16 not in next(iter(table_of(folder, device).values())).artifacts


def test_no_key_begins_after_the_budget(device: str, folder: Path) -> None:
    entries = [scale_entry(device, n=n) for n in (10, 20, 40)]
    seen: list[Outcome] = []
    report = certify(Certifier(get(device), folder), entries, 0.0, seen.append)
    assert (report.outcomes, report.left, seen) == ([], 3, [])
    report = certify(Certifier(get(device), folder), entries, None, seen.append)
    assert report.left == 0
    assert len(seen) == len(table_of(folder, device)) == 3


def test_what_is_packed_is_verified_without_compilers(
    device: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified(Certifier(get(device), folder), scale_entry(device, Setting(256), Setting(128)))
    (one,) = table_of(folder, device).values()
    monkeypatch.setattr("nbxtensor.certify.verify.missing_compilers", lambda kind: ("triton",))
    monkeypatch.setattr("nbxtensor.certify.compiling.missing_compilers", lambda kind: ("triton",))
    found = verify(one, get(device))
    assert (found.verdict, found.reason) == ("proved", "")
    assert found.runs > 5
    monkeypatch.setattr("nbxtensor.certify.prove.available", lambda job: None)
    assert verify(one, get(device)).verdict == "stale"


# Tables


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    def write(who: int) -> None:
        for i in range(20):
            store.add(tmp_path, "arch", "op", certificate(f"{who}-{i}"), fresh=False)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    path = store.table_path(tmp_path, "arch", "op")
    assert len(store.read(path)) == 60
    assert path.read_text().splitlines() == sorted(path.read_text().splitlines(), key=lambda s: json.loads(s)["key"])
    assert [p.name for p in path.parent.iterdir() if "json." in p.name] == []


def test_certificates_of_one_key_unite_if_they_say_the_same(tmp_path: Path) -> None:
    path = store.table_path(tmp_path, "arch", "op")
    first = certificate(artifacts={"a": "1"}, proof={"calls": ["exp(float32[3])"], "error": 0.5})
    second = certificate(artifacts={"b": "2"}, proof={"calls": ["sin(float32[3])"], "error": 0.2})
    store.add(tmp_path, "arch", "op", first, fresh=False)
    store.add(tmp_path, "arch", "op", second, fresh=False)
    (one,) = store.read(path).values()
    assert (dict(one.artifacts), one.proof["error"]) == ({"a": "1", "b": "2"}, 0.5)
    assert one.proof["calls"] == ["exp(float32[3])", "sin(float32[3])"]
    store.add(tmp_path, "arch", "op", certificate(setting=2, artifacts={"c": "3"}), fresh=False)
    (one,) = store.read(path).values()
    assert dict(one.artifacts) == {"c": "3"}
    store.add(tmp_path, "arch", "op", certificate(setting=2, artifacts={"d": "4"}), fresh=True)
    (one,) = store.read(path).values()
    assert dict(one.artifacts) == {"d": "4"}


def test_a_table_that_would_be_too_large_is_refused(tmp_path: Path) -> None:
    many = {f"{i:016x}": "0" * 16 for i in range(6000)}
    with pytest.raises(CertificateError, match="would be larger than 200,000 bytes.*certify fewer"):
        store.add(tmp_path, "arch", "op", certificate(artifacts=many), fresh=False)
    assert not store.table_path(tmp_path, "arch", "op").exists()


def test_a_damaged_table_is_an_error_and_stays_as_it_is(tmp_path: Path) -> None:
    path = store.table_path(tmp_path, "arch", "op")
    path.parent.mkdir(parents=True)
    path.write_text("{half a li")
    with pytest.raises(CertificateError, match="is not JSON"):
        store.add(tmp_path, "arch", "op", certificate(), fresh=False)
    assert path.read_text() == "{half a li"


# Command lines


@pytest.fixture
def verb(folder: Path, capsys: pytest.CaptureFixture[str], device: str) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        if arguments[0] in ("certify", "verify") and "--arch" not in arguments:
            arguments = (*arguments, "--device", device)
        status = run(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_certify_list_runs_nothing(verb: Any, folder: Path) -> None:
    status, out, _ = verb("certify", "--op", "softmax", "--shapes", "64x1024,64x33", "--list")
    assert status == 0
    assert out.count("\n") == 4
    assert out.endswith("    2 uncertified\n2 keys\n")
    assert not folder.exists()
    status, out, _ = verb("certify", "--list", "--arch", "sm_90", "--json")
    listed = json.loads(out)
    assert status == 0
    assert len(listed["keys"]) > 100
    assert not listed["left_out"]


def test_certify_then_verify(verb: Any, folder: Path, device: str) -> None:
    status, out, err = verb("certify", "--op", "exp", "--op", "sin", "--shapes", "5000", "--dtype", "bfloat16")
    assert status == 0, err
    assert "1 tie" in out or "1 chosen" in out
    status, out, _ = verb("verify", "--json")
    report = json.loads(out)
    assert (status, report["counts"]) == (0, {"proved": 1, "failed": 0, "stale": 0, "skipped": 0})
    path = store.table_path(folder, get(device).target.arch, "pointwise")
    (one,) = read_table(path.read_text(), "x").values()
    wrong = one.line().replace(next(iter(one.artifacts.values())), "0" * 16)
    path.write_text(wrong + "\n")
    status, out, _ = verb("verify")
    assert status == 1
    assert "failed" in out
    status, out, _ = verb("verify", "--op", "softmax", "--json")
    assert (status, json.loads(out)["certificates"]) == (0, [])


def test_verify_takes_what_launches_take(
    verb: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale certificate of your own hides none that holds; tables that are named are proved, all of them."""
    assert verb("certify", "--op", "exp(float32[777])", "--output", str(tmp_path / "shipped"))[0] == 0
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "shipped")
    (path,) = (tmp_path / "shipped").rglob("*.json")
    own = folder / path.relative_to(tmp_path / "shipped")
    own.parent.mkdir(parents=True)
    own.write_text(re.sub('"artifacts":{[^}]*}', '"artifacts":{"0":"0"}', path.read_text()))

    def verdicts(*places: str) -> list[str]:
        status, out, _ = verb("verify", "--json", *places)
        assert status == 0
        return [one["verdict"] for one in json.loads(out)["certificates"]]

    assert verdicts() == ["proved"]
    assert verdicts(str(folder)) == ["stale"]
    assert sorted(verdicts(str(folder), str(tmp_path / "shipped"))) == ["proved", "stale"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("certify", "--op", "sofmax"), "did you mean softmax"),
        (("certify", "--shapes", "4"), "--shapes and --dtype need an operator"),
        (("certify", "--op", "exp", "--shapes", "4by4"), "not a shape; got 4by4"),
        (("certify", "--op", "exp(float31[4])"), "float31"),
        (("certify", "--op", "exp", "--shapes", "4", "--dtype", "int33"), "int33"),
        (("certify", "--op", "matmul", "--shapes", "4x5", "--shapes", "4x5"), "the inner sizes differ"),
        (("certify", "--op", "exp(float32[4], axes=3)"), "is not a call of exp: "),
        (("certify", "--op", "exp(float32[4])", "--shapes", "4"), "--shapes and --dtype need an operator"),
        (("verify", "--op", "sofmax"), "did you mean softmax"),
        (("certify", "--op", "exp", "--shapes", "4", "--budget", "soon"), "--budget needs a time"),
        (("certify", "--dim", "n=3"), "--dim needs a model"),
        (("certify", "--model", "/nowhere/a.onnx"), "/nowhere/a.onnx"),
        (("certify", "--op", "exp", "--arch", "sm_999"), "sm_999"),
        (("verify", "/nowhere/tables"), "there is no such table"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], expected: str, verb: Any) -> None:
    status, out, err = verb(*arguments)
    assert (status, out) == (2, "")
    assert expected in err
    assert len(err.splitlines()) == 1


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    key = launch_key("softmax", "rows", {"count": 4}, ("float32",), get("cpu").target)
    with progress(2) as show:
        show(Outcome(key, "tie"))
        show(Outcome(key, "refused", thrown_out=((Setting(64), "other bits"),)))
    err = capsys.readouterr().err
    assert "2/2" in err
    assert "refused " in err
    assert "thrown out: block=64: other bits" in err
    assert "tie  " not in err


def test_times_are_read() -> None:
    assert [seconds_of(t) for t in ("120", "120s", "2m", "2min", "1h", "0.5s")] == [120, 120, 120, 120, 3600, 0.5]
    for text in ("", "s", "-1", "1 year", "nan"):
        with pytest.raises(ArgumentError):
            seconds_of(text)


def test_a_killed_run_goes_on_where_it_was(folder: Path, verb: Any, device: str) -> None:
    shapes = ",".join(f"{n}x40" for n in (2, 3, 5, 9, 17, 33, 65, 129))
    command = [sys.executable, "-m", "nbxtensor.cli", "certify", "--op", "sum", "--shapes", shapes, "--device", device]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = len(table_of(folder, device, "reduce"))
    assert done >= 1
    status, out, _ = verb("certify", "--op", "sum", "--shapes", shapes, "--json")
    report = json.loads(out)
    assert status == 0
    assert report["counts"]["covered"] == done
    assert len(table_of(folder, device, "reduce")) == len(report["keys"])
