"""Reports: what a trace holds adds up to the result, files are whole or absent, figures are drawn, formulas are right."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import h5py
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from scenes import ROOT, random_chip, random_workload

from archmodel import evaluate, load_chip, load_workload
from archmodel.errors import ArchmodelError, OutputError, TraceError
from archmodel.explain import explanation
from archmodel.operations import Kind
from archmodel.report import breakdown, write
from archmodel.report.files import file_name, write_whole
from archmodel.report.profile import profile, spread
from archmodel.report.record import Choice, record
from archmodel.report.summary import assumed, summary
from archmodel.report.table import report
from archmodel.report.trace import read_trace, write_trace
from archmodel.result import Result
from archmodel.sizes import weight_bytes
from archmodel.units import SUFFIXES

TEXTS = {"chip_text": "# chip", "workload_text": "# workload", "command": "archmodel eval"}
FIGURES = ("timeline", "breakdown", "roofline")


@pytest.fixture(scope="module")
def llm() -> Result:
    return evaluate(load_chip(ROOT / "chips/hetero_v1.toml"), load_workload(ROOT / "workloads/llm_100b.toml"))


@pytest.fixture(scope="module")
def encoder() -> Result:
    return evaluate(load_chip(ROOT / "chips/hetero_v1.toml"), load_workload(ROOT / "workloads/risk_encoder.toml"))


@pytest.fixture(scope="module")
def scenes() -> list[Result]:
    """Results of random chips and workloads that fit."""
    rng = np.random.default_rng(20)
    found: list[Result] = []
    while len(found) < 12:
        try:
            found.append(evaluate(random_chip(rng), random_workload(rng)))
        except ArchmodelError:
            continue
    return found


def test_spread_equals_the_slow_sum() -> None:
    """Every event, every bin: overlap over length; events without length fall into one bin."""
    rng = np.random.default_rng(1)
    start = rng.uniform(0, 8, 60)
    end = start + rng.choice([0.0, 0.1, 3.0], 60) * rng.uniform(0, 1, 60)
    values, edges = rng.uniform(0, 5, (60, 3)), np.linspace(0, 12, 25)
    slow = np.zeros((24, 3))
    for e in range(60):
        for b in range(24):
            low, high = edges[b], edges[b + 1]
            if end[e] > start[e]:
                slow[b] += values[e] * max(0.0, min(end[e], high) - max(start[e], low)) / (end[e] - start[e])
            elif low <= start[e] < high:
                slow[b] += values[e]
    np.testing.assert_allclose(spread(start, end, values, edges), slow, rtol=1e-9, atol=1e-9)


def test_profile_adds_up_to_the_run(scenes: list[Result], llm: Result) -> None:
    for result in (*scenes, llm):
        found = profile(result)
        width = result.total_s / len(found.time_s)
        for name, byte in result.traffic_byte().items():
            assert found.bandwidth_byte_per_s[name].sum() * width == pytest.approx(byte, rel=1e-6)
        assert sum(watt.sum() for watt in found.power_w.values()) * width == pytest.approx(result.total_j, rel=1e-6)
        for name, busy in result.busy_s().items():
            assert found.busy_fraction[name].sum() * width == pytest.approx(busy, rel=1e-6)
        for curve in found.utilisation.values():
            assert curve.min() >= 0.0
            assert curve.max() <= 1.0
        for unit in result.soc.units:
            assert found.utilisation[unit].mean() == pytest.approx(result.utilisation[unit], rel=1e-6)


def test_waits_fill_every_gap_of_a_unit(scenes: list[Result], llm: Result) -> None:
    """Busy intervals and wait pieces tile the time of each unit up to its last event: no gap without a cause, none twice."""
    for result in (*scenes, llm):
        tables = record(result)
        for name in (name for name in tables if name.startswith("timeline/")):
            events, pieces = tables[name], tables[name.replace("timeline", "waits")]
            for number, unit in enumerate(result.soc.units):
                mine, idle = events["resource"].codes == number, pieces["resource"].codes == number
                if not mine.any():
                    continue
                start = np.concatenate([events["start_s"][mine], pieces["start_s"][idle]])
                end = np.concatenate([events["end_s"][mine], pieces["end_s"][idle]])
                order = np.lexsort((end, start))
                np.testing.assert_allclose(start[order][1:], end[order][:-1], rtol=0, atol=1e-12 * end.max(), err_msg=unit)
                assert start.min() == 0.0
                assert events["wait_s"][mine].sum() == pytest.approx((end - start)[mine.sum() :].sum(), rel=1e-9)


def test_gaps_of_the_npu_wait_for_the_gpu(llm: Result) -> None:
    """In a decode step without micro-batches the arrays stand idle because the GPU computes, nothing else comes near."""
    tables = record(llm)
    pieces = next(table for name, table in tables.items() if name.startswith("waits/decode"))
    mine = np.array(pieces["resource"].words()) == "npu"
    length = (pieces["end_s"] - pieces["start_s"])[mine]
    causes = np.array(pieces["cause"].words())[mine]
    assert length[causes == "compute"].sum() > 0.8 * length.sum()


def test_summary_adds_up(scenes: list[Result], llm: Result, encoder: Result) -> None:
    for result in (*scenes, llm, encoder):
        found = summary(result)
        json.dumps(found, allow_nan=False)
        total = found["total_s"]
        assert sum(found["segments_s"].values()) == pytest.approx(total, rel=1e-9)
        phases = found["segments_by_phase_s"]
        assert sum(sum(parts.values()) for parts in phases.values()) == pytest.approx(total, rel=1e-9)
        assert sum(found["energy_j"].values()) == pytest.approx(found["total_j"], rel=1e-12)
        assert found["power_w"] * total == pytest.approx(found["total_j"], rel=1e-12)
        for unit in found["busy_s"]:
            parts = [found[key][unit] for key in ("busy_s", "stall_s", "idle_s")]
            assert min(parts) >= 0.0
            assert sum(parts) == pytest.approx(total, rel=1e-9), unit
        for tier in found["capacity"].values():
            assert sum(part["byte"] for part in tier["resident"]) == pytest.approx(tier["used_byte"])
            assert tier["used_byte"] <= tier["capacity_byte"]


def test_limits_say_kept_or_missed_and_by_how_much(encoder: Result) -> None:
    workload = encoder.workload
    strict = attrs.evolve(workload, limits=attrs.evolve(workload.limits, latency_ms=encoder.total_s * 1e3 / 4))
    loose = attrs.evolve(workload, limits=attrs.evolve(workload.limits, latency_ms=encoder.total_s * 1e3 * 4))
    missed = summary(evaluate(encoder.chip, strict))["limits"]["latency"]
    kept = summary(evaluate(encoder.chip, loose))["limits"]["latency"]
    assert not missed["kept"]
    assert missed["margin_fraction"] == pytest.approx(-3.0)
    assert kept["kept"]
    assert kept["margin_fraction"] == pytest.approx(0.75)


def test_assumptions_are_the_clauses_that_say_so() -> None:
    assert assumed("brief: x; assumption: a, b; measured: y;  assumption: c (see z)") == ["a, b", "c (see z)"]
    assert assumed("assumption: 3.9 pJ (a statement; 3.97 in a paper), 1 nJ; measured: z") == [
        "3.9 pJ (a statement; 3.97 in a paper), 1 nJ"
    ]
    assert assumed("measured on silicon") == []


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ({"deferred_experts": True}, "deferred_experts does less than it says: the model has no routed experts"),
        ({"experts": "npu"}, "experts does less than it says: the model has no routed experts"),
        ({"light": ("vector",)}, "light does less than it says: there is no placement.light_unit"),
        ({"row_split": ("head",)}, "row_split does less than it says: placement.shares does not divide head"),
        ({"decode_micro_batches": 9}, "decode_micro_batches does less than it says: the batch has 8 sequences"),
    ],
)
def test_what_a_placement_asks_for_in_vain_is_noted(llm: Result, placement: dict[str, Any], words: str) -> None:
    plain = evaluate(llm.chip, llm.workload)
    asked = evaluate(llm.chip, attrs.evolve(llm.workload, placement=placement))
    (new,) = set(summary(asked)["notes"]) - set(summary(plain)["notes"])
    assert words in new


def test_experts_a_layer_late_are_noted() -> None:
    workload = load_workload(ROOT / "workloads/llm_100b_moe.toml")
    late = evaluate(load_chip(ROOT / "chips/hetero_v1.toml"), attrs.evolve(workload, placement={"deferred_experts": True}))
    assert any("a layer later (placement.deferred_experts)" in note for note in summary(late)["notes"])


@pytest.mark.parametrize("width", [60, 80, 100, 118, 160])
def test_no_table_cuts_a_number_or_a_name(width: int) -> None:
    """All figures of a system with long names are there at any width, wrapped at worst."""
    chip = load_chip(ROOT / "chips/systems/gpu_npu_pcie5.toml")
    result = evaluate(chip, load_workload(ROOT / "workloads/llama3_8b.toml"))
    console = Console(width=width, file=io.StringIO())
    console.print(report(result, 160))
    text = console.file.getvalue()
    assert "…" not in text
    assert width < 80 or all(f"{name} " in text for name in result.energy_j if result.energy_j[name])
    assert max(map(len, text.splitlines())) <= width
    assert re.search(r"e\+\d\d", text) is None, "no figure with an exponent"


def test_trace_reads_back_what_was_recorded(llm: Result, tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    write_trace(llm, path, **TEXTS)
    trace, expected = read_trace(path), record(llm)
    assert trace.tables.keys() == expected.keys()
    for name, table in expected.items():
        assert list(trace.tables[name]) == list(table), name
        for column, values in table.items():
            found = trace.tables[name][column]
            if isinstance(values, Choice):
                assert found.words() == values.words()
            elif isinstance(values, list):
                assert found == values
            else:
                np.testing.assert_array_equal(found, values)
    assert trace.attributes["chip_toml"] == "# chip"
    assert trace.attributes["command"] == "archmodel eval"
    assert json.loads(trace.attributes["chip_resolved_json"])["blocks"]["npu"]["rows"] == 32


def test_trace_is_plain_hdf5_with_a_unit_on_every_dataset(llm: Result, tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    write_trace(llm, path, **TEXTS)
    assert path.stat().st_size < 500_000
    known = {*SUFFIXES.values(), "1"}
    with h5py.File(path, "r") as file:
        assert file.attrs["schema_version"] == 1
        units = {}
        file.visititems(lambda name, item: units.update({name: item.attrs["unit"]}) if isinstance(item, h5py.Dataset) else None)
        assert set(units.values()) <= known
        assert units["summary/total_s"] == "s"
        assert units["over_time/bandwidth_byte_per_s/hbm"] == "B/s"
        assert units["over_time/power_w/npu_mac"] == "W"
        assert units["operations/memory_limit_s"] == "s"
        assert file["operations/name"].asstr()[0] == llm.table.rows.name[0]
        assert float(file["summary/total_s"][()]) == llm.total_s
        assert float(file["energy/energy_j"][:].sum()) == pytest.approx(llm.total_j)
        lengths = {name: {len(column) for column in group.values()} for name, group in file.items()
                   if name not in ("summary", "timeline", "waits", "over_time")}  # fmt: skip
        assert all(len(found) == 1 for found in lengths.values()), lengths


def test_two_traces_of_one_run_are_alike_to_the_byte(encoder: Result, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trace(encoder, tmp_path / name, **{**TEXTS, "chip_text": "é" * 100_000})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damaged_and_foreign_traces_are_refused(encoder: Result, tmp_path: Path) -> None:
    whole = tmp_path / "whole.h5"
    write_trace(encoder, whole, **TEXTS)
    data = whole.read_bytes()
    broken = tmp_path / "broken.h5"
    for length in (0, 1, 100, 2048, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:length])
        with pytest.raises(TraceError, match=r"broken\.h5: is truncated, damaged or no HDF5 file"):
            read_trace(broken)
    broken.write_text("[chip]\nname = 1\n")
    with pytest.raises(TraceError, match="no HDF5 file"):
        read_trace(broken)
    with pytest.raises(TraceError, match="does not exist"):
        read_trace(tmp_path / "absent.h5")
    with pytest.raises(TraceError):
        read_trace(tmp_path)
    with h5py.File(broken, "w") as file:
        file["x"] = [1, 2]
    with pytest.raises(TraceError, match="something else"):
        read_trace(broken)
    with h5py.File(whole, "r+") as file:
        file.attrs["schema_version"] = 99
    with pytest.raises(TraceError, match="schema version 99"):
        read_trace(whole)


def test_damage_inside_a_trace_never_ends_in_another_error(encoder: Result, tmp_path: Path) -> None:
    """Seeded overwritten stretches: the trace still reads, or a TraceError is raised."""
    path = tmp_path / "t.h5"
    write_trace(encoder, path, **TEXTS)
    data, rng = path.read_bytes(), random.Random(4)
    for _ in range(60):
        at = rng.randrange(len(data) - 64)
        path.write_bytes(data[:at] + rng.randbytes(64) + data[at + 64 :])
        with contextlib.suppress(TraceError):
            read_trace(path)


def images(folder: Path) -> Iterator[Image.Image]:
    for name in FIGURES:
        (path,) = folder.glob(f"*.{name}.png")
        with Image.open(path) as image:
            image.load()
            yield image


@pytest.mark.parametrize("which", ["llm", "encoder"])
def test_figures_are_drawn_from_the_trace(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(which)
    files = write.write_reports(result, tmp_path, **TEXTS)
    assert [file.suffix for file in files] == [".h5", ".png", ".png", ".png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in files)
    for image in images(tmp_path):
        assert image.width > 1000
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        share = (pixels != 255).any(axis=1).mean()
        assert 0.02 < share < 0.7, share
        margin = np.asarray(image.convert("L"))
        assert margin[:, :4].min() == margin[:, -2:].min() == 255, "something is cut off at the edge"


@pytest.mark.parametrize("chip", ["h100_sxm", "cim_card"])
def test_bars_of_the_breakdown_are_all_of_the_energy(chip: str, tmp_path: Path) -> None:
    """Every cause of energy has a place in the figure: what is written beside the bars of all blocks adds up to 100 %."""
    result = evaluate(load_chip(ROOT / f"chips/{chip}.toml"), load_workload(ROOT / "workloads/llama3_8b.toml"))
    path = tmp_path / "x.h5"
    write_trace(result, path, **TEXTS)
    figure = Figure()
    breakdown.draw(figure, read_trace(path))
    shares = [float(text.get_text().split(", ")[1].removesuffix("%")) for text in figure.axes[1].texts]
    assert sum(shares) == pytest.approx(100.0, abs=0.05 * len(shares))


def test_a_repeated_run_keeps_its_figures_and_another_draws_anew(
    encoder: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {file: file.read_bytes() for file in write.write_reports(encoder, tmp_path, **TEXTS)}
    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: pytest.fail("drawn again"))
        again = {file: file.read_bytes() for file in write.write_reports(encoder, tmp_path, **TEXTS)}
    assert again == first
    figures = [file for file in first if file.suffix == ".png"]
    figures[0].write_bytes(b"something else")
    write.write_reports(encoder, tmp_path, **TEXTS)
    assert figures[0].read_bytes() == first[figures[0]]
    write.write_reports(encoder, tmp_path, **{**TEXTS, "command": "another"})
    assert all(file.read_bytes() != first[file] for file in figures), "each carries the mark of its own trace"


def test_figures_of_random_runs_and_odd_names(scenes: list[Result], tmp_path: Path) -> None:
    """Names with formulas, markup, other scripts and slashes are names."""
    odd = ["$x_{1$", "[red]芯片[/]", "a/b: ../c", "нейро чип", "x" * 300]
    for number, (result, name) in enumerate(zip(scenes, odd, strict=False)):
        chip, workload = attrs.evolve(result.chip, name=name), attrs.evolve(result.workload, name=f"{name} {number}")
        write.write_reports(evaluate(chip, workload), tmp_path / str(number), **TEXTS)
        assert len(list((tmp_path / str(number)).glob("*--*.png"))) == 3


def test_file_names_stay_in_their_folder() -> None:
    assert file_name("hetero_v1") == "hetero_v1"
    assert file_name("../../etc/passwd") == "_.._etc_passwd"
    assert file_name("...") == "_"
    assert file_name("芯片 v1") == "芯片_v1"
    assert len(file_name("é" * 400).encode()) <= 100


def test_nothing_is_replaced_when_a_later_file_fails(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError(28, "No space left on device")

    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("old")
    with pytest.raises(OutputError, match="b: cannot be written: No space left on device"):
        write_whole({first: lambda part: part.write_text("new"), second: fail})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert first.read_text() == "old"


def test_a_failing_figure_leaves_the_old_report(encoder: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write.write_reports(encoder, tmp_path, **TEXTS)
    before = {file: file.read_bytes() for file in files}
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(OutputError, match="I/O error"):
        write.write_reports(encoder, tmp_path, **{**TEXTS, "command": "another"})
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_at_any_moment_leaves_the_old_report_or_the_new(encoder: Result, tmp_path: Path) -> None:
    """A child rewrites a report for ever and is killed after seeded delays; whatever has the name of a report is whole."""
    write.write_reports(encoder, tmp_path, **{**TEXTS, "command": "run 0"})
    rng = random.Random(3)
    for kill in range(1, 9):
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                while True:
                    write.write_reports(encoder, tmp_path, **{**TEXTS, "command": f"run {kill}"})
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0.02, 0.9))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        (trace,) = tmp_path.glob("*.h5")
        assert read_trace(trace).attributes["command"] in {f"run {n}" for n in range(kill + 1)}
        assert len(list(images(tmp_path))) == 3
    for path in tmp_path.iterdir():
        assert path.suffix in (".h5", ".png") or (path.name.startswith(".") and path.suffix == ".part")


def test_explained_formulas_evaluate_to_what_they_claim(scenes: list[Result], llm: Result, encoder: Result) -> None:
    for result in (*scenes, llm, encoder):
        for topic in explanation(result):
            for formula in topic.formulas:
                value = eval(formula.expression, {"__builtins__": {}})
                assert math.isclose(value, formula.value, rel_tol=1e-6), (topic.title, formula)


def test_explained_values_are_the_costs(llm: Result) -> None:
    """The formulas of the dearest operation give the operations, bytes and share that the model worked with."""
    topics = explanation(llm)
    named = {topic.title.split()[0]: {f.name: f.value for f in topic.formulas} for topic in topics}
    rows, costs = llm.table.rows, llm.table.costs
    row = next(i for i, name in enumerate(rows.name) if name == "ffn_up" and llm.first.count[i] > 0)
    assert rows.kind[row] == Kind.MATMUL
    (found,) = [t for t in topics if t.title.startswith("ffn_up on npu in prefill")]
    values = {f.name: f.value for f in found.formulas}
    assert values["operations"] == 2 * 8 * 1024 * 10240 * 65536 == 2 * costs.mac[row]
    assert values["share of the peak"] == costs.utilisation[row]
    assert values["time at int8 peak"] <= costs.duration_s[row]
    assert named["KV"]["KV cache"] == 8 * 1280 * 80 * 2 * 8 * 128 * 2
    assert named["Weights"]["weights"] == weight_bytes(llm.workload.model, llm.precision)
    assert named["Peaks"]["gpu fp16"] == pytest.approx(4096 * 2 * 1.4e9)
