"""Bad input stops at the door: broken files, each with the words that its message must hold, and seeded random damage.

Every message names the file, the key, the value and the rule; never a traceback, never a guess.
"""

from __future__ import annotations

import json
import math
import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from broken import CHIP, CHIPS, CONFIG, CONFIGS, ENCODER, ROOT, TEXTS, UNFIT, WORKLOAD, WORKLOADS, Changes, edited

from archmodel.cli import main
from archmodel.errors import ArchmodelError, MappingError, SpecError
from archmodel.evaluate import evaluate
from archmodel.spec.chip import KINDS, ChipSpec, MemberSpec
from archmodel.spec.chip_file import CHIP_TABLES
from archmodel.spec.economics import BY_NAME
from archmodel.spec.economics_file import default_economics, load_economics
from archmodel.spec.toml import build_chip, build_workload, load_chip, load_workload, parse_overrides, read_table


def ids(cases: list[tuple[str, Any, tuple[str, ...]]]) -> Any:
    return pytest.mark.parametrize(("change", "words"), [case[1:] for case in cases], ids=[case[0] for case in cases])


def refused(load: Callable[[Path], object], file: Path, words: tuple[str, ...]) -> str:
    """The message with which `load` refuses `file`: short lines, the file first, then its problems with `words`."""
    with pytest.raises(SpecError) as caught:
        load(file)
    message = str(caught.value)
    assert re.match(rf"{re.escape(str(file))}: \d+ problems?\n  ", message)
    assert [word for word in words if word not in message] == [], message
    assert len(message.splitlines()) == 1 + len(caught.value.problems)
    return message


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command line in an empty folder: it must refuse with exit code 2, print nothing and write nothing."""

    def run(*arguments: str | Path) -> str:
        folder = tmp_path / "empty"
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert main([str(argument) for argument in arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        assert list(folder.iterdir()) == []
        return printed.err

    return run


@ids(CHIPS)
def test_broken_chip(change: Changes, words: tuple[str, ...], tmp_path: Path, run: Callable[..., str]) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(edited(CHIP, change), encoding="utf-8")
    message = refused(load_chip, file, words)
    assert message in run("eval", file, WORKLOAD)


@ids(WORKLOADS)
def test_broken_workload(change: Changes, words: tuple[str, ...], tmp_path: Path, run: Callable[..., str]) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(edited(WORKLOAD, change), encoding="utf-8")
    message = refused(load_workload, file, words)
    assert message in run("eval", CHIP, file)


@ids(TEXTS)
def test_broken_text(change: bytes, words: tuple[str, ...], tmp_path: Path, run: Callable[..., str]) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(change)
    message = refused(load_chip, file, words)
    assert message == refused(load_workload, file, words)
    assert message in run("show", file)


@ids(CONFIGS)
def test_broken_config(change: dict[str, Any], words: tuple[str, ...], tmp_path: Path, run: Callable[..., str]) -> None:
    file, workload = tmp_path / "config.json", tmp_path / "workload.toml"
    table = {**json.loads(CONFIG.read_text()), **change}
    file.write_text(json.dumps({key: value for key, value in table.items() if value is not ...}))
    workload.write_text(edited(WORKLOAD, {"model": 'config = "config.json"'}), encoding="utf-8")
    message = refused(load_workload, file, words)
    assert message in run("eval", CHIP, file)
    through = (f"model.config: {file}, ", *(word for word in words if "problem" not in word))
    refused(load_workload, workload, through)


@pytest.mark.parametrize("load", [load_chip, load_workload])
def test_empty_file(load: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_bytes(b"")
    refused(load, file, (".name: missing", ".source: missing"))


@pytest.mark.parametrize(("load", "suffix"), [(load_chip, "toml"), (load_workload, "toml"), (load_workload, "json")])
def test_file_that_is_not_there(load: Callable[[Path], object], suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"hetero.{suffix}").write_text("")
    refused(load, tmp_path / f"hetreo.{suffix}", (f"file: does not exist; did you mean hetero.{suffix}?",))
    refused(load, tmp_path / "none" / f"x.{suffix}", (f"file: does not exist; there is no folder {tmp_path / 'none'}",))
    (tmp_path / f"folder.{suffix}").mkdir()
    refused(load, tmp_path / f"folder.{suffix}", ("file: cannot be read: Is a directory",))


def test_files_in_the_wrong_order(run: Callable[..., str]) -> None:
    refused(load_chip, WORKLOAD, ("file: is a workload, where a chip is wanted",))
    refused(load_workload, CHIP, ("file: is a chip, where a workload is wanted",))
    assert "wanted" in run("eval", WORKLOAD, CHIP)


def test_bases_in_a_circle(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / f"{name}.toml").write_text(f'[chip]\nextends = "{base}.toml"\n')
    refused(load_chip, tmp_path / "a.toml", ('chip.extends: "b.toml", must not lead back to a file that extends it',))


def test_problem_of_a_base_names_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[chip\n")
    (tmp_path / "child.toml").write_text('[chip]\nextends = "base.toml"\n')
    refused(load_chip, tmp_path / "child.toml", (f"chip.extends: {tmp_path / 'base.toml'}, file: is not valid TOML",))


@pytest.mark.parametrize("setting", ["npu.rows", "npu=5", "=5", ".rows=5", "npu.=5", "npu..rows=5", "npu .rows=5", "", "="])
def test_malformed_setting(setting: str, run: Callable[..., str]) -> None:
    with pytest.raises(SpecError, match=r"--set: 2 problems\n.*must look like table.key=value, for example npu.clock_ghz=1.2"):
        parse_overrides([setting, "npu.rows=8", setting])
    assert "--set: 1 problem" in run("eval", CHIP, WORKLOAD, "--set", setting)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("npu.rowz=8", "npu.rowz: unknown key"),
        ("npux.rows=8", "npux: unknown table, did you mean npu?"),
        ("hbn.latency_ns=8", "hbn: unknown table, did you mean hbm?"),
        ("npu.rows=8.5", "npu.rows: 8.5, must be an integer"),
        ("npu.rows=-8", "npu.rows: -8, must be > 0"),
        ("npu.rows=", 'npu.rows: "", must be an integer'),
        ("npu.rows=[[[", 'npu.rows: "[[[", must be an integer'),
        ("npu.rows=" + "[" * 5000, 'npu.rows: "[[['),
        ("npu.rows=" + "9" * 5000, 'npu.rows: "999'),
        ("npu.dataflow=as", 'npu.dataflow: "as", must be one of os, ws, is'),
        ("npu.rows.int8=1", "rows is a value, not a table"),
        ("noc.joins=gpu", 'noc.joins: "gpu", must be a list of strings'),
        ("request.batch=0", "request.batch: 0, must be > 0"),
        ("request.batches=1", "request.batches: unknown key, did you mean batch?"),
        ("precision.head=fp12", 'precision.head: "fp12", must be one of'),
        ("placement.head=tpu", 'placement.head: "tpu", must name a unit'),
    ],
)
def test_setting_that_no_spec_takes(setting: str, words: str, run: Callable[..., str]) -> None:
    assert words in run("eval", CHIP, WORKLOAD, "--set", setting)


@ids(UNFIT)
def test_workload_that_does_not_fit_the_chip(
    change: tuple[Changes, Changes], words: tuple[str, ...], tmp_path: Path, run: Callable[..., str]
) -> None:
    files = [tmp_path / "chip.toml", tmp_path / "workload.toml"]
    for file, good, changes in zip(files, (CHIP, WORKLOAD), change, strict=True):
        file.write_text(edited(good, changes), encoding="utf-8")
    with pytest.raises(MappingError) as caught:
        evaluate(load_chip(files[0]), load_workload(files[1]))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert str(caught.value) in run("eval", *files)


BAD_VALUES = (0, -1, 10**30, 10**400, math.nan, math.inf, 1e300, True, "", "x", [], ["x"], {}, None)


NEAR_CHIP = str(ROOT / "chips/x.toml")
NEAR_SYSTEM = str(ROOT / "chips/systems/x.toml")

#: file, tables of it whose keys are set (none: all), where paths in it lead from
FILES = [
    (CHIP, (), NEAR_CHIP),
    (ROOT / "chips/h100_sxm.toml", ("peers", "board", "server", "cost", "software"), NEAR_CHIP),
    (ROOT / "chips/cim_card.toml", ("cim",), NEAR_CHIP),
    (ROOT / "chips/loihi2.toml", ("neuromorphic", "placement"), NEAR_CHIP),
    (ROOT / "chips/systems/gpu_cim.toml", ("system", "gpu_card", "cim_card", "host"), NEAR_SYSTEM),
    (WORKLOAD, (), "x"),
    (ENCODER, (), "x"),
]


def keys_of(name: str, block: dict[str, Any]) -> list[str]:
    """Keys that a table has, and all that it might have."""
    spec = {**KINDS, **CHIP_TABLES, "chip": MemberSpec, "system": ChipSpec}.get(block.get("kind", name))
    return list(
        dict.fromkeys([*block, *(field.name for field in attrs.fields(spec) if "rule" in field.metadata)] if spec else block)
    )


@pytest.mark.parametrize(("good", "tables", "near"), FILES, ids=[file.stem for file, *_ in FILES])
def test_every_key_with_every_bad_value(good: Path, tables: tuple[str, ...], near: str) -> None:
    """No number but 0 is accepted, and a refusal names the key, or the block where another key rests on it."""
    table = read_table(good)
    build: Callable[..., object] = build_workload if near == "x" else build_chip
    refusals = 0
    for name in tables or table:
        for key in keys_of(name, table[name]):
            for value in BAD_VALUES:
                message = refusal(lambda: build({**table, name: {**table[name], key: value}}, near))  # noqa: B023
                refusals += bool(message)
                assert name in message if message else value in (0, True, "", "x", [], ["x"], {}), (name, key, value)
    assert refusals > 150


@pytest.mark.parametrize("boundary", ["board", "server", "facility"])
def test_every_key_of_a_boundary(boundary: str) -> None:
    fine = {"board": {"vrm_efficiency": 0.9, "source": "x"}, "facility": {"pue": 1.2, "source": "x"},
            "server": {"chips_per_server": 8, "host_power_w": 100, "psu_efficiency": 0.9, "source": "x"}}  # fmt: skip
    table = {**read_table(CHIP), **fine}
    assert not refusal(lambda: build_chip(table, NEAR_CHIP))
    for key in keys_of(boundary, table[boundary]):
        for value in BAD_VALUES:
            message = refusal(lambda: build_chip({**table, boundary: {**table[boundary], key: value}}, NEAR_CHIP))  # noqa: B023
            assert f"{boundary}.{key}" in message if message else value in (0, "x"), (key, value)


def test_every_key_of_the_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    prices = attrs.asdict(default_economics())
    for name, parts in prices.items():
        tables = {f"{name}.{key}": part for key, part in parts.items()} if name in BY_NAME else {name: parts}
        for table, keys in list(tables.items())[:1]:
            for key in keys:
                for raw in ("-1", "nan", "inf", "true", "1e300", "[]", '""', "{x = 1}"):
                    source = "" if key == "source" else 'source = "x"\n'
                    file.write_text(f"[{table}]\n{source}{key} = {raw}\n", encoding="utf-8")
                    message = refusal(lambda: load_economics(file))
                    assert f"{table}.{key}" in message in message, (table, key, raw)


@pytest.mark.parametrize("value", [0, "", None, [], False])
def test_a_table_of_a_system_that_is_none(value: Any) -> None:
    table = read_table(ROOT / "chips/systems/gpu_cim.toml")
    for name in ("placement", "precision", "software", "power", "board", "server", "facility"):
        assert f"{name}: " in refusal(lambda: build_chip({**table, name: value}, NEAR_SYSTEM))  # noqa: B023


def test_a_member_with_a_null_character_in_its_path() -> None:
    table = read_table(ROOT / "chips/systems/gpu_cim.toml")
    card = {**table["gpu_card"], "chip": "a\0b"}
    assert "gpu_card.chip: " in refusal(lambda: build_chip({**table, "gpu_card": card}, NEAR_SYSTEM))


@pytest.mark.parametrize("option", ["--power-cap-w", "--latency-limit-ms", "--period-ms"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1", "x"])
def test_options_that_are_no_quantity(option: str, value: str, run: Callable[..., str]) -> None:
    assert option in run("eval", CHIP, WORKLOAD, "--json", "--min-energy", option, value)


def refusal(load: Callable[[], object]) -> str:
    """The message of an ArchmodelError, or nothing; every other error is a failure of the test."""
    try:
        load()
    except ArchmodelError as error:
        return str(error)
    return ""


def damaged(dice: random.Random, data: bytes) -> bytes:
    """`data` with one thing wrong: cut short, a byte changed or put in, a line lost, doubled or misplaced, other numbers."""
    place, lines = dice.randrange(len(data)), data.split(b"\n")
    line, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + dice.randbytes(1) + data[place + dice.randrange(2) :]
        case 2:
            return (
                data[:place] + dice.choice([b'"', b"'", b"[", b"]", b"{", b"}", b"=", b".", b",", b"#", b"\n"]) + data[place:]
            )
        case 3:
            return b"\n".join(lines[:line] + lines[line + 1 :])
        case 4:
            return b"\n".join([*lines[:line], lines[other], *lines[line + dice.randrange(2) :]])
        case _:
            return re.sub(rb"\d+", lambda digits: dice.choice([digits[0]] * 20 + [b"-1", b"0", b"1e999", b"true"]), data)


@pytest.mark.parametrize(("good", "load"), [(CHIP, load_chip), (WORKLOAD, load_workload), (CONFIG, load_workload)])
def test_random_damage_is_read_or_refused(good: Path, load: Callable[[Path], object], tmp_path: Path) -> None:
    dice = random.Random(20)
    file = tmp_path / f"damaged{good.suffix}"
    refusals = 0
    for _ in range(500):
        data = good.read_bytes()
        for _ in range(dice.randint(1, 3)):
            data = damaged(dice, data) or b"\n"
        file.write_bytes(data)
        message = refusal(lambda: load(file))
        refusals += bool(message)
        assert not message or str(file) in message
    assert 200 < refusals < 500


def test_changes_to_the_good_file_are_what_breaks_it() -> None:
    """The edits above start from files that load."""
    for file, load in ((CHIP, load_chip), (WORKLOAD, load_workload)):
        assert load(file)
        assert tomllib.loads(edited(file, {})) == tomllib.loads(file.read_text(encoding="utf-8"))
