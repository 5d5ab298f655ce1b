"""Chip files against data sheets: derived peaks, memory, power limit, and what every file must say of its numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from archmodel.components import memory
from archmodel.soc import Soc
from archmodel.spec.chip import GpuSpec
from archmodel.spec.toml import load_chip, read_table

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "chips").glob("*.toml"))
MEASURED = {"a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s", "mi210"}
PEAKS = {"bf16_tflops": "bf16", "fp8_tflops": "fp8", "int8_tops": "int8", "fp4_tflops": "fp4"}


def sheets():
    with (ROOT / "tests/anchors/accelerators.csv").open(encoding="utf-8") as lines:
        return {row["chip"]: row for row in csv.DictReader(lines)}


SHEETS = sheets()
INHERITED = sorted(set(SHEETS) - MEASURED)


@pytest.mark.parametrize("name", SHEETS)
def test_peaks_are_those_of_the_data_sheet(name):
    soc = Soc(load_chip(ROOT / f"chips/{name}.toml"))
    peaks = next(iter(soc.peaks_per_s().values()))
    listed = {fmt: float(SHEETS[name][column]) * 1e12 for column, fmt in PEAKS.items() if SHEETS[name][column]}
    assert {fmt: peaks[fmt] for fmt in listed} == pytest.approx(listed, rel=0.03)


@pytest.mark.parametrize("name", SHEETS)
def test_memory_and_power_limit_are_those_of_the_data_sheet(name):
    chip = load_chip(ROOT / f"chips/{name}.toml")
    soc, sheet = Soc(chip), SHEETS[name]
    tier = soc.tiers[next(iter(soc.units.values())).memory]
    assert memory.peak_byte_per_s(tier) / 1e9 == pytest.approx(float(sheet["mem_bw_gbs"]), rel=0.04)
    assert memory.capacity_byte(tier) / 1e9 == pytest.approx(float(sheet["mem_gb"]), rel=0.08)  # GB, or GiB, as vendors print
    if sheet["tdp_w"] and chip.power.limit_w:
        assert chip.power.limit_w == float(sheet["tdp_w"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_table_says_where_its_numbers_come_from(file):
    chip = load_chip(file)
    assert chip.name == file.stem
    sources = {"chip": chip.source, **{name: block.source for name, block in chip.blocks.items()}}
    assert all(source.strip() for source in sources.values())
    own = read_table(file)
    silent = {name for name, table in own.items() if isinstance(table, dict) and "source" not in table}
    assert not silent or "source" in own["chip"]


@pytest.mark.parametrize("name", INHERITED)
def test_a_chip_without_measurements_says_so(name):
    chip = load_chip(ROOT / f"chips/{name}.toml")
    assert any("measure" in remark for remark in chip.remarks)
    unit = next(iter(Soc(chip).units.values()))
    if isinstance(unit, GpuSpec):
        assert "-class constants (fitted on " in unit.source


@pytest.mark.parametrize("name", [name for name in INHERITED if "extends" in read_table(ROOT / f"chips/{name}.toml")["chip"]])
def test_a_changed_table_has_a_source_of_its_own(name):
    """Or it would claim the source of the chip that it extends for numbers which are not that chip's."""
    own = read_table(ROOT / f"chips/{name}.toml")
    assert [table for table, keys in own.items() if set(keys) - {"source"} and "source" not in keys] == []


@pytest.mark.parametrize("name", ["l4", "rtx_4090"])
def test_the_cache_keeps_the_bytes_a_cycle_and_mb_of_its_class(name):
    """Fails when a new fit of the class moves it far: rescale `l2.bandwidth_byte_per_cycle` by the capacity."""
    base = read_table(ROOT / f"chips/{name}.toml")["chip"]["extends"]
    caches = [load_chip(ROOT / "chips" / file).blocks["l2"] for file in (f"{name}.toml", base)]
    assert np.isclose(*(cache.bandwidth_byte_per_cycle / cache.capacity_mb for cache in caches), rtol=0.2)


#: units that were measured to read a small part of what their memory has
NARROW = {("apple_m2_ultra", "ane"): 61.68e9}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_routes_and_bandwidths_exist(file):
    soc = Soc(load_chip(file))
    for name, unit in soc.units.items():
        peak = memory.peak_byte_per_s(soc.tiers[unit.memory])
        if (narrow := NARROW.get((file.stem, name))) is not None:
            assert soc.path_byte_per_s(name, unit.memory) == pytest.approx(narrow)
        else:
            assert 0.4 * peak < soc.path_byte_per_s(name, unit.memory) <= peak
        assert soc.path_byte_per_s(name, unit.buffer) > 0.0
