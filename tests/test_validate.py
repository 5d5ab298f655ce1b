"""Measured rows against predictions: the split, the plain roofline, the scores, and the report that is made of them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import attrs
import numpy as np
import pytest

from archmodel.cli import main
from archmodel.errors import TableError
from archmodel.holdout import FAMILY, FIT_SHARE, draw, family, fit_mask, is_fit
from archmodel.report.validation import accuracy_table, page, skipped_lines, write_validation
from archmodel.spec.toml import load_chip
from archmodel.validation.llmcompass import layers, peer_points
from archmodel.validation.points import OPERATIONS, Points, points, predicted, tables
from archmodel.validation.roofline import _pairs
from archmodel.validation.run import validate
from archmodel.validation.scores import (
    BARS,
    DEVICES,
    Score,
    bar_of,
    cached,
    fair,
    noise,
    ranges,
    regimes,
    score,
    scores,
    summary,
)
from archmodel.validation.transfer import NEXT_OF_KIN, left_out, with_constants

ROOT = Path(__file__).parents[1]
DATA = ROOT / "data/validation"
SPLIT_AS = {"attn_context": "attention", "attn_generation": "attention"}


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with every twelfth row, which is enough to write every part of the report."""
    root = tmp_path_factory.mktemp("clone")
    for folder in ("chips", "stacks", "workloads"):
        (root / folder).symlink_to(ROOT / folder)
    (root / "data/validation").mkdir(parents=True)
    for path in DATA.glob("*.csv"):
        header, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        few = lines if "llmcompass" in path.stem else lines[::12]
        (root / "data/validation" / path.name).write_text(header + "".join(few), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def small(clone):
    return validate(clone)


def made(**given):
    """Points with the given columns; two rows that are right unless said otherwise."""
    size = len(given.get("measured_us", (0, 0)))
    columns = {
        "measured_us": np.ones(size), "predicted_us": np.ones(size), "roofline_us": np.ones(size),
        "label": np.array(["bf16"] * size), "report": np.ones(size, bool), "beyond": np.zeros(size, bool),
        "resident": np.zeros(size, bool), "size": np.ones(size),
    }  # fmt: skip
    columns |= {name: np.asarray(value) for name, value in given.items() if name in columns}
    return Points(what=given.get("what", "gemm"), device=given.get("device", "h100_sxm"), table=None, **columns)


# the split


@pytest.mark.parametrize("what", [what for what in OPERATIONS if what != "collectives"])
def test_a_family_is_in_one_part_on_every_device(what):
    parts = {}
    for path in DATA.glob(f"{what}_*.csv"):
        for row in rows(path):
            key = family(SPLIT_AS.get(what, what), row)
            assert parts.setdefault(key, row["part"]) == row["part"]
            assert (row["part"] == "fit") == is_fit(key)
    assert {"report"} <= set(parts.values())


def test_a_family_ignores_how_a_number_is_written():
    assert family("gemm", {"n": "4096", "k": 1024.0}) == family("gemm", {"n": 4096.0, "k": "1024.0"}) == "n=4096,k=1024"


def test_the_share_of_families_in_the_fit():
    keys = [f"n={n},k={k}" for n in range(40) for k in range(50)]
    assert np.mean([is_fit(key) for key in keys]) == pytest.approx(FIT_SHARE, abs=0.03)
    both = [is_fit(key) and is_fit(key, seed=99) for key in keys]
    assert np.mean(both) == pytest.approx(FIT_SHARE**2, abs=0.02)  # seeds are independent
    assert 0.0 <= draw("x") < 1.0


def test_a_mask_is_that_of_the_families():
    table = {"n": [256.0, 512.0, 256.0], "k": [64.0, 64.0, 64.0]}
    expected = [is_fit(family("gemm", {"n": n, "k": 64})) for n in table["n"]]
    assert fit_mask("gemm", table).tolist() == expected
    assert FAMILY["attention"] == ("heads", "kv_heads", "head_dim")


# the roofline


def test_roofline_of_a_product_by_hand():
    found = points("gemm", "a100_sxm", load_chip(ROOT / "chips/a100_sxm.toml"), DATA / "gemm_a100_sxm.csv")
    table = found.table
    m, n, k = (np.array(table.texts(name), float) for name in "mnk")
    bf16 = np.flatnonzero(found.label == "bf16")
    flop_us = 2 * m * n * k / (108 * 1024 * 2 * 1.41e9) * 1e6
    byte_us = 2 * (m * k + n * k + m * n) / 2039e9 * 1e6
    assert found.roofline_us[bf16] == pytest.approx(np.maximum(flop_us, byte_us)[bf16], rel=1e-3)


@pytest.mark.parametrize("window", [0, 1, 3, 7, 40])
@pytest.mark.parametrize(("seq_q", "kv_len"), [(1, 1), (1, 9), (5, 5), (5, 9), (16, 16), (12, 40)])
def test_pairs_under_mask_and_window(window, seq_q, kv_len):
    seen = 0
    for query in range(kv_len - seq_q, kv_len):
        seen += sum(1 for key in range(query + 1) if window == 0 or query - key < window)
    one = [np.array([float(value)]) for value in (seq_q, kv_len, window)]
    assert _pairs(*one) == pytest.approx(seen)


# the scores


def test_a_score_by_hand():
    three = made(measured_us=[10.0] * 3, predicted_us=[9.0, 12.0, 10.0], roofline_us=[5.0] * 3)
    entry = score(three, "bf16", np.ones(3, bool))
    assert (entry.n, entry.median, entry.roofline_median) == (3, pytest.approx(10.0), pytest.approx(50.0))
    assert (entry.mean, entry.signed) == (pytest.approx(10.0), pytest.approx(10.0 / 3))
    assert score(made(), "bf16", np.zeros(2, bool)) is None


def test_rows_of_a_fit_and_rows_from_the_cache_are_in_no_score():
    found = made(measured_us=[1.0] * 4, report=[True, True, True, False], beyond=[False, True, True, False],
                 resident=[False, True, False, False])  # fmt: skip
    assert fair(found).tolist() == [True, False, False, False]
    assert [entry.n for entry in scores(found)] == [1]
    assert [entry.n for entry in cached(found)] == [1, 1]


def test_small_messages_are_in_no_score():
    assert fair(made(what="collectives", size=[1024.0, 65536.0])).tolist() == [False, True]


def test_bars():
    assert bar_of("gemm", "bf16", "h100_sxm") == (3.5, 5.5)
    assert bar_of("collectives", "", "l40s") is None
    entry = Score("gemm", "h100_sxm", "bf16", 9, 3.5, 5.5, 9.0, 0.0, 30.0, 30.0, (3.5, 5.5))
    assert entry.met is True
    assert attrs.evolve(entry, mean=5.6).met is False
    assert attrs.evolve(entry, bar=(3.5, 0.0), mean=99.0).met is True
    assert attrs.evolve(entry, bar=None).met is None
    assert all(len(bars) in (4, 5) for bars in BARS.values())


def test_sizes_are_divided_at_their_edges():
    found = regimes(made(measured_us=[1.0] * 3, size=[16.0, 17.0, 9000.0]), "bf16")
    assert [(name, entry.n) for name, entry in found] == [("≤ 16", 1), ("≤ 128", 1), ("> 8 Ki", 1)]
    assert ranges((65535.0, 2**20)) == ["≤ 64 Ki", "≤ 1 Mi", "> 1 Mi"]


def test_two_libraries_differ_on_the_same_products():
    found = points("gemm", "a100_sxm", load_chip(ROOT / "chips/a100_sxm.toml"), DATA / "gemm_a100_sxm.csv")
    assert 3.0 < noise(found).median < 8.0
    assert {"bf16", "bf16 (SGLang)"} <= set(found.label.tolist())


# a device left out of the fit


def test_constants_of_oneself_change_nothing():
    chip = load_chip(ROOT / "chips/h100_sxm.toml")
    assert with_constants(chip, chip) == chip


def test_constants_of_another_leave_the_data_sheet():
    chip, donor = (load_chip(ROOT / f"chips/{name}.toml") for name in ("b200_sxm", "a100_sxm"))
    mixed = with_constants(chip, donor)
    gpu, own, other = mixed.blocks["gpu"], chip.blocks["gpu"], donor.blocks["gpu"]
    assert (gpu.cores, gpu.clock_ghz, gpu.macs_per_core_per_cycle) == (own.cores, own.clock_ghz, own.macs_per_core_per_cycle)
    assert (gpu.kernel_floor_us, gpu.overlap_exponent) == (other.kernel_floor_us, other.overlap_exponent)
    assert (gpu.multicast, gpu.buffer_partitions) == (own.multicast, own.buffer_partitions)
    assert gpu.tile_sizes == other.tile_sizes  # chosen by a fit
    faster = own.macs_per_core_per_cycle["bf16"] / other.macs_per_core_per_cycle["bf16"]
    assert gpu.feed_byte_per_core_per_cycle == pytest.approx(faster * other.feed_byte_per_core_per_cycle)
    assert mixed.blocks["l2"].capacity_mb == chip.blocks["l2"].capacity_mb
    per_core = donor.blocks["l2"].bandwidth_byte_per_cycle / other.cores
    assert mixed.blocks["l2"].bandwidth_byte_per_cycle / gpu.cores == pytest.approx(per_core)
    assert mixed.blocks["hbm"].data_rate_gbit_per_s == chip.blocks["hbm"].data_rate_gbit_per_s


def test_every_device_is_left_out_once(clone):
    found = left_out(clone / "data/validation", ROOT / "chips")
    assert set(found) == {(device, donor) for device in DEVICES for donor in DEVICES}
    assert set(NEXT_OF_KIN) == set(DEVICES)
    assert all(NEXT_OF_KIN[device] != device for device in DEVICES)


# what must hold of the model


def test_every_operation_with_a_bar_is_far_closer_than_the_roofline(small):
    for entry in small.summary:
        assert entry.median < 0.7 * entry.roofline_median, entry


def test_closer_than_llmcompass_on_its_matmuls_and_its_layer():
    for peer in peer_points(DATA, ROOT / "chips", ROOT / "stacks"):
        if peer.op in ("matmul", "allreduce"):
            mean = {name: np.mean(np.abs(error)) for name, error in peer.errors().items()}
            assert mean["archmodel"] < mean["LLMCompass"], (peer.device, peer.op)
    decode = next(phase for phase in layers(DATA, ROOT / "chips", ROOT / "stacks") if phase.op == "decode")
    total = {name: abs(time_s.sum() / decode.measured_s.sum() - 1.0) for name, time_s in decode.predicted_s.items()}
    assert total["archmodel"] < total["LLMCompass"]


# the report


def test_the_report_is_the_same_every_time(small, clone, tmp_path):
    first = write_validation(small, tmp_path / "a")
    second = write_validation(validate(clone), tmp_path / "b")
    assert [path.name for path in first] == ["validation.md", "validation.scatter.png", "validation.regimes.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_page_says_what_a_reader_needs(small):
    text = page(small)
    for words in ("How to read it", "Against what was asked for", "Served from the cache", "What no model can beat",
                  "A device that nobody has measured", "LLMCompass", "data/validation/README.md"):  # fmt: skip
        assert words in text
    for entry in small.summary:
        assert f"{entry.median:.1f} / {entry.mean:.1f}" in text
    assert "nan" not in text.replace("finance", "")
    widths = {line.count("|") for line in accuracy_table(small).splitlines()}
    assert widths == {len(DEVICES) + 3}


def test_a_table_that_is_not_predicted_is_named(clone, tmp_path):
    shutil.copytree(clone / "data/validation", tmp_path / "data/validation")
    broken = tmp_path / "data/validation/gemm_l40s.csv"
    broken.write_text(broken.read_text(encoding="utf-8").replace("bfloat16", "posit16"), encoding="utf-8")
    found = list(predicted(tmp_path / "data/validation", ROOT / "chips"))
    assert [entry.device for entry in found if not isinstance(entry, Points) and entry.what == "gemm"] == ["l40s"]


def test_skipped_tables_have_a_line(small):
    assert len(skipped_lines(small)) == len({(entry.what, entry.reason) for entry in small.skipped})


def test_summary_covers_every_bar_of_what_is_predicted(small):
    kinds = {(entry.what, entry.device) for entry in small.summary}
    assert kinds == {(p.what, p.device) for p in small.points if p.what in {what for what, _ in BARS} and fair(p).any()}
    assert summary(small.points) == list(small.summary)


def test_no_tables(tmp_path):
    with pytest.raises(TableError, match="no measured tables"):
        tables(tmp_path)


def test_command(clone, tmp_path, monkeypatch, capsys):
    assert main(["validate", "--root", str(clone), "-o", str(tmp_path / "out"), "--quick"]) == 0
    assert not (tmp_path / "out").exists()
    assert "GEMM bf16" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 2
    assert "no measured tables" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
