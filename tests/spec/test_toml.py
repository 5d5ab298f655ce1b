"""Chip and workload files: what a person may write, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from broken import CHIP, CONFIG, ENCODER, ROOT, WORKLOAD, edited

from archmodel.errors import SpecError
from archmodel.spec.chip import KINDS, ChipSpec, GpuSpec, NpuSpec
from archmodel.spec.huggingface import read_config
from archmodel.spec.toml import apply_overrides, chip_table, load_chip, load_workload, parse_overrides
from archmodel.spec.workload import RequestSpec

CHIP_FILES = sorted((ROOT / "chips").glob("*.toml"))
WORKLOAD_FILES = sorted((ROOT / "workloads").glob("*.toml"))


def npu(chip: ChipSpec) -> NpuSpec:
    block = chip.blocks["npu"]
    assert isinstance(block, NpuSpec)
    return block


def written(folder: Path, text: str | bytes, name: str = "file.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder / name


@pytest.mark.parametrize("file", CHIP_FILES, ids=lambda file: file.stem)
def test_every_chip_loads(file: Path) -> None:
    chip = load_chip(file)
    assert chip.name == file.stem
    assert chip.of_kind(GpuSpec, NpuSpec)
    sources = [block.source for block in chip.blocks.values()] + [chip.source]
    assert all("assumption:" in source or len(source) > 10 for source in sources)


@pytest.mark.parametrize("file", WORKLOAD_FILES, ids=lambda file: file.stem)
def test_every_workload_loads(file: Path) -> None:
    workload = load_workload(file)
    assert workload.name == file.stem
    assert (workload.request.output_tokens == 0) == (workload.model.family == "encoder")


def test_blocks_are_what_the_file_says() -> None:
    """Order, kinds and numbers as written; an integer is a float where a float is meant."""
    chip, table = load_chip(CHIP), chip_table(CHIP)
    assert list(chip.blocks) == [name for name in table if KINDS.get(table[name].get("kind", name))]
    for name, block in chip.blocks.items():
        assert type(block) is KINDS[table[name].get("kind", name)]
        for key, value in table[name].items():
            if key != "kind":
                held = getattr(block, key)
                pairs = key == "voltage_points"
                assert ([list(x) if pairs else x for x in held] if isinstance(held, tuple) else held) == value
                assert isinstance(held, float) or not isinstance(value, float)
    assert type(chip.blocks["sram"].capacity_mb) is float  # type: ignore[union-attr]


def test_a_second_block_of_a_kind(tmp_path: Path) -> None:
    body = edited(CHIP, {}).split("[npu]\n")[1].split("\n[")[0]
    text = edited(CHIP, {"npu.buffer_share": "0.25", "noc.joins": '["gpu", "npu", "npu_b", "control", "sram"]'})
    text += f'\n[npu_b]\nkind = "npu"\n{body.replace("buffer_share = 0.5", "buffer_share = 0.25")}'
    chip = load_chip(written(tmp_path, text))
    assert list(chip.of_kind(NpuSpec)) == ["npu", "npu_b"]
    assert attrs.evolve(chip.blocks["npu_b"], buffer_share=0.25) == chip.blocks["npu"]


@pytest.mark.parametrize("encode", [
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: b"\xef\xbb\xbf" + text.encode(),
    lambda text: b"\xef\xbb\xbf\r\n" + text.replace("\n", "\r\n").encode(),
    lambda text: text.rstrip("\n").replace(" = ", "=").encode(),
])  # fmt: skip
@pytest.mark.parametrize("folder", ["plain", "my chips and workloads", "Größe 芯片"])
def test_encoding_and_path_change_nothing(encode: Callable[[str], bytes], folder: str, tmp_path: Path) -> None:
    for file, load in ((CHIP, load_chip), (WORKLOAD, load_workload)):
        name = "hetero v1 β.toml"
        assert load(written(tmp_path / folder, encode(file.read_text("utf-8")), name)) == load(file)
        assert load(str(tmp_path / folder / name)) == load(file)
    config = written(tmp_path / folder, encode(CONFIG.read_text("utf-8")), "config 模型.json")
    assert attrs.evolve(read_config(config), name="m", source="") == attrs.evolve(read_config(CONFIG), name="m", source="")


@pytest.mark.parametrize(("setting", "block", "key", "value"), [
    ("npu.rows=8", "npu", "rows", 8),
    ("npu.rows = 8 ", "npu", "rows", 8),
    ("npu.rows=0x10", "npu", "rows", 16),
    ("npu.clock_ghz=1", "npu", "clock_ghz", 1.0),
    ("npu.clock_ghz=1.2e0", "npu", "clock_ghz", 1.2),
    ("npu.dataflow=os", "npu", "dataflow", "os"),
    ('npu.dataflow="os"', "npu", "dataflow", "os"),
    ("npu.double_buffered=false", "npu", "double_buffered", False),
    ("npu.macs_per_pe_per_cycle.int8=2", "npu", "macs_per_pe_per_cycle", {"int8": 2.0}),
    ("npu.macs_per_pe_per_cycle={int8 = 2, int4 = 4}", "npu", "macs_per_pe_per_cycle", {"int8": 2.0, "int4": 4.0}),
    ("gpu.tile_sizes=[32, 64]", "gpu", "tile_sizes", (32, 64)),
    ("hbm.standard=HBM3E", "hbm", "standard", "HBM3E"),
    ("host.source=a = b", "host", "source", "a = b"),
])  # fmt: skip
def test_override(setting: str, block: str, key: str, value: Any) -> None:
    overrides = parse_overrides([setting, "npu.mac_energy_pj.int4=0.05"])
    before = load_chip(CHIP, {"npu.mac_energy_pj.int4": 0.05})
    after = load_chip(CHIP, overrides)
    assert getattr(after.blocks[block], key) == value
    assert type(getattr(after.blocks[block], key)) is type(value)
    unchanged = {name: value for name, value in after.blocks.items() if name != block}
    assert unchanged == {name: value for name, value in before.blocks.items() if name != block}


def test_overrides_of_one_key_and_of_a_new_table() -> None:
    assert parse_overrides(["npu.rows=8", "npu.rows=16"]) == {"npu.rows": 16}
    table = {"npu": {"rows": 32}}
    assert apply_overrides(table, {"npu.rows": 8, "power.limit_w": 75}) == {"npu": {"rows": 8}, "power": {"limit_w": 75}}
    assert table == {"npu": {"rows": 32}}
    assert load_chip(CHIP, {"power.limit_w": 75}).power.limit_w == 75.0


def test_a_chip_extends_another(tmp_path: Path) -> None:
    base = written(tmp_path / "base folder", CHIP.read_text("utf-8"), "base.toml")
    middle = written(tmp_path, '[chip]\nextends = "base folder/base.toml"\n[npu]\nrows = 8\ncols = 8\n', "middle.toml")
    top = written(tmp_path, '[chip]\nextends = "middle.toml"\nname = "top"\n[npu]\ncols = 4\n', "top.toml")
    good, chip = load_chip(base), load_chip(top)
    assert (npu(chip).rows, npu(chip).cols, chip.name) == (8, 4, "top")
    assert attrs.evolve(npu(chip), rows=npu(good).rows, cols=npu(good).cols) == npu(good)
    assert chip.of_kind(GpuSpec) == good.of_kind(GpuSpec)
    assert list(chip.blocks) == list(good.blocks)
    assert npu(load_chip(middle, {"npu.rows": 2})).rows == 2


def test_model_config_is_relative_to_the_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "my models", CONFIG.read_bytes(), "tiny.json")
    monkeypatch.chdir(tmp_path)
    for config in ("../my models/tiny.json", str(CONFIG)):
        text = edited(WORKLOAD, {"model": f'config = "{config}"'})
        model = load_workload(written(tmp_path / "workloads", text)).model
        assert attrs.evolve(model, name="m", source="") == attrs.evolve(read_config(CONFIG), name="m", source="")
    assert load_workload("workloads/file.toml").model == model


def test_config_json_as_a_workload(tmp_path: Path) -> None:
    workload = load_workload(CONFIG)
    assert workload.model == read_config(CONFIG)
    assert workload.name == CONFIG.stem
    request = RequestSpec(batch=2, input_tokens=64, output_tokens=1)
    assert load_workload(CONFIG, request=request).request == request
    changed = load_workload(
        CONFIG, parse_overrides(["request.batch=3", "precision.kv_cache=fp8", "limits.latency_ms=5"]), request
    )
    assert changed.request == attrs.evolve(request, batch=3)
    assert changed.precision is not None
    assert (changed.precision.kv_cache, changed.limits.latency_ms) == ("fp8", 5.0)
    upper = written(tmp_path, CONFIG.read_bytes(), "MODEL.JSON")
    assert load_workload(upper).request == workload.request


def test_config_json_of_an_encoder_generates_nothing() -> None:
    bert = ROOT / "tests/anchors/model_configs/BERT-base-uncased.json"
    assert load_workload(bert).request.output_tokens == 0
    with pytest.raises(SpecError, match=r"request.output_tokens: 5, must be 0 for an encoder"):
        load_workload(bert, {"request.output_tokens": 5})


def test_config_json_has_no_shape_to_set() -> None:
    with pytest.raises(SpecError, match=r"model: cannot be set on a config.json; request, precision, limits, placement can"):
        load_workload(CONFIG, {"model.layers": 3})


def test_a_given_request_is_held_to_the_rules_of_the_model() -> None:
    request = RequestSpec(batch=2, input_tokens=64, output_tokens=0)
    assert load_workload(ENCODER, request=request).request == request
    assert load_workload(WORKLOAD, {"request.output_tokens": 1}, request).request.output_tokens == 1
    for file in (WORKLOAD, CONFIG):
        with pytest.raises(SpecError, match=r"request.output_tokens: 0, must be >= 1 for a decoder"):
            load_workload(file, request=request)


@pytest.mark.parametrize(("key", "value", "rule"), [
    ("rows", 0, "rows: 0, must be > 0"),
    ("rows", 2.5, "rows: 2.5, must be an integer"),
    ("rows", True, "rows: true, must be an integer"),
    ("rows", 10**400, "rows: 1000"),
    ("clock_ghz", math.nan, "clock_ghz: NaN, must be finite"),
    ("clock_ghz", "fast", 'clock_ghz: "fast", must be a number'),
    ("clock_ghz", None, "clock_ghz: null, must be a number"),
    ("dataflow", "xs", 'dataflow: "xs", must be one of os, ws, is'),
    ("dataflow", ["os"], 'dataflow: ["os"], must be a string'),
    ("double_buffered", 1, "double_buffered: 1, must be true or false"),
    ("capabilities", ("fly",), 'capabilities: ["fly"], fly is unknown'),
    ("macs_per_pe_per_cycle", {"int8": -1}, 'macs_per_pe_per_cycle: {"int8": -1}, int8 must be a finite number > 0'),
    ("macs_per_pe_per_cycle", {8: 1}, "8 is no number format"),
])  # fmt: skip
def test_a_spec_changed_in_python_is_checked_as_a_file_is(key: str, value: Any, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        attrs.evolve(npu(load_chip(CHIP)), **{key: value})
    assert str(caught.value).startswith("NpuSpec: 1 problem\n  ")
    assert rule in str(caught.value)


def test_values_from_numpy_and_plain_integers_become_what_the_field_says() -> None:
    spec = attrs.evolve(npu(load_chip(CHIP)), rows=np.int64(8), clock_ghz=np.float32(1.5), vector_op_per_cycle=64)
    assert [type(value) for value in (spec.rows, spec.clock_ghz, spec.vector_op_per_cycle)] == [int, float, float]
    assert (spec.rows, spec.clock_ghz, spec.vector_op_per_cycle) == (8, 1.5, 64.0)
