"""Predictions: formats and units, SCALE-Sim's cycles, laws, errors against measured times, and what is written."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path

import attrs
import numpy as np
import pytest
from rich.console import Console

from archmodel.accuracy import EDGES, accuracies, size_labels
from archmodel.components import gpu, memory
from archmodel.costs import LIMITS, Surroundings
from archmodel.dtypes import ALIASES, DTYPES
from archmodel.errors import MappingError, OutputError, TableError
from archmodel.operations import Kind, rows_from
from archmodel.predict import predict_file
from archmodel.report.predictions import statistics_json, statistics_table, write_csv
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.toml import load_chip
from archmodel.units import FORMATS

HERE = Path(__file__).parent
CHIPS = HERE.parent / "chips"
SCALESIM = HERE / "anchors" / "scalesim_v3_gemm.csv"
HETERO, GPU = load_chip(CHIPS / "hetero_v1.toml"), load_chip(CHIPS / "gpu_baseline.toml")

GEMM_HEAD = "m,n,k,dtype"
ATTENTION_HEAD = "batch,seq_q,kv_len,heads,kv_heads,head_dim,window,attn_dtype,kv_dtype"


def write(folder, head, rows, name="operations.csv"):
    path = folder / name
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


def read(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def random_gemms(rng, count, dtypes):
    sizes = np.exp(rng.uniform(0, np.log(8192), (count, 3))).astype(int)
    return [(*row, str(rng.choice(dtypes))) for row in sizes.tolist()]


def random_attentions(rng, count, dtypes):
    rows = []
    for _ in range(count):
        kv_heads, group, kv_len = (int(rng.choice(choice)) for choice in ((1, 2, 8), (1, 4, 8), (16, 100, 2048, 5000)))
        seq_q = int(rng.choice((1, kv_len // 3 + 1, kv_len)))
        window = int(rng.choice((0, 128)))
        rows.append((int(rng.integers(1, 9)), seq_q, kv_len, kv_heads * group, kv_heads, 64, window, *rng.choice(dtypes)))
    return rows


# --- which unit, in which format


def test_formats_go_to_the_gpu_first_and_to_the_npu_if_only_it_has_them(tmp_path):
    rows = [(64, 64, 64, dtype) for dtype in ("fp16", "float16", "int8", "fp8", "int4", "int4_wo", "sq")]
    found = predict_file(HETERO, write(tmp_path, GEMM_HEAD, rows))
    assert found.unit == ("gpu", "gpu", "npu", "gpu", "gpu", "gpu", "npu")
    assert found.compute_format == ("fp16", "fp16", "int8", "fp8", "int4", "bf16", "int8")
    assert found.remarks == ()


def test_a_wider_format_is_used_and_said_where_no_unit_has_the_format(tmp_path):
    found = predict_file(GPU, write(tmp_path, GEMM_HEAD, [(64, 64, 64, "int8"), (64, 64, 64, "fp16")]))
    assert found.compute_format == ("fp16", "fp16")
    assert found.remarks == ("int8 is computed in fp16 on gpu",)


def test_formats_that_no_unit_holds_are_refused_all_at_once(tmp_path):
    rows = [(1, 1, 1, "fp16"), (1, 1, 1, "tf32"), (1, 1, 1, "fp32"), (1, 1, 1, "tf32")]
    with pytest.raises(MappingError) as error:
        predict_file(HETERO, write(tmp_path, GEMM_HEAD, rows))
    first, *rest = str(error.value).splitlines()
    assert "gpu has fp16, bf16, fp8, int4; npu has int8" in first
    assert rest == ["  line 3 and alike: tf32 needs tf32", "  line 4 and alike: fp32 needs fp32"]


def test_a_chip_without_a_capable_unit_is_refused(tmp_path):
    blind = attrs.evolve(HETERO, blocks={
        name: attrs.evolve(block, capabilities=("norm",)) if hasattr(block, "capabilities") else block
        for name, block in HETERO.blocks.items()
    })  # fmt: skip
    with pytest.raises(MappingError, match="no unit can run matmul"):
        predict_file(blind, write(tmp_path, GEMM_HEAD, [(1, 1, 1, "fp16")]))


def test_every_format_has_a_meaning_and_every_alias_a_target():
    for name, dtype in DTYPES.items():
        assert set(dtype.compute) <= set(FORMATS), name
        assert dtype.b_byte <= dtype.a_byte or name == "fp8_block", name
    assert set(ALIASES.values()) <= set(DTYPES)
    assert not set(ALIASES) & set(DTYPES)
    assert DTYPES["int4_wo"].b_byte * 128 == 128 / 2 + 2  # 128 weights of 4 bits and an fp16 scale
    assert DTYPES["nvfp4"].b_byte * 16 == 16 / 2 + 1  # 16 weights of 4 bits and an 8-bit scale


# --- values


def around(chip, unit, rows):
    soc, spec = Soc(chip), Soc(chip).units[unit]
    return spec, Surroundings(
        buffer_byte=memory.capacity_byte(soc.tiers[spec.buffer]) * spec.buffer_share,
        buffer_byte_per_s=soc.path_byte_per_s(unit, spec.buffer),
        memory_byte_per_s=np.full(len(rows), soc.path_byte_per_s(unit, spec.memory)),
        memory_latency_s=soc.path_latency_s(unit, spec.memory),
    )


def test_a_prediction_is_the_cost_of_the_operation_and_of_the_kernels_before_it(tmp_path):
    """fp8 quantises 16-bit activations on the fly: a pass for the largest value, a pass that scales, then the product."""
    m, n, k = 300, 512, 4096
    fp8, quantise = FORMATS.index("fp8"), CAPABILITIES.index("quantise")
    records = [
        {"name": "amax", "kind": Kind.VECTOR, "capability": quantise, "flop": 2.0 * m * k, "read_byte": 2.0 * m * k},
        {"name": "scale", "kind": Kind.VECTOR, "capability": quantise, "flop": 2.0 * m * k, "read_byte": 2.0 * m * k,
         "write_byte": 1.0 * m * k},
        {"name": "product", "kind": Kind.MATMUL, "m": m, "n": n, "k": k, "compute_format": fp8, "input_byte": 1.0,
         "weight_byte": 1.0, "output_byte": 2.0},
    ]  # fmt: skip
    rows = rows_from(records)
    spec, near = around(HETERO, "gpu", rows)
    cost = gpu.costs(spec, rows, near)
    path = write(tmp_path, GEMM_HEAD, [(m, n, k, "fp8"), (m, n, k, "fp8_static")])
    found = predict_file(HETERO, path, repeated=False)
    assert found.predicted_us == pytest.approx([1e6 * cost.duration_s.sum(), 1e6 * cost.duration_s[2]], rel=1e-12)
    assert found.bound == (LIMITS[np.argmax(cost.limits_s.sum(axis=0))], LIMITS[cost.bound[2]])


def test_a_row_is_predicted_alike_alone_in_another_place_and_another_file(tmp_path):
    rng = np.random.default_rng(8)
    dtypes = ["fp16", "fp8", "int8", "int4_wo", "sq", "fp8_block"]
    pairs = [("fp16", "fp16"), ("fp16", "fp8"), ("fp8", "fp8")]
    for head, rows in ((GEMM_HEAD, random_gemms(rng, 60, dtypes)), (ATTENTION_HEAD, random_attentions(rng, 60, pairs))):
        whole = predict_file(HETERO, write(tmp_path, head, rows))
        order = rng.permutation(len(rows))
        mixed = predict_file(HETERO, write(tmp_path, head, [rows[i] for i in order]))
        assert np.array_equal(mixed.predicted_us, whole.predicted_us[order])
        assert mixed.bound == tuple(whole.bound[i] for i in order)
        for i in order[:6]:
            assert predict_file(HETERO, write(tmp_path, head, [rows[i]])).predicted_us[0] == whole.predicted_us[i]


def test_no_prediction_beats_the_peak(tmp_path):
    rows = random_gemms(np.random.default_rng(9), 300, ["fp16", "fp8", "int8", "int4_wo"])
    found = predict_file(HETERO, write(tmp_path, GEMM_HEAD, rows))
    peaks = Soc(HETERO).peaks_per_s()
    for (m, n, k, _), unit, name, time_us in zip(rows, found.unit, found.compute_format, found.predicted_us, strict=True):
        assert time_us * 1e-6 * peaks[unit][name] >= 2.0 * m * n * k


def test_no_prediction_reads_the_cache_faster_than_memory(tmp_path):
    rows = random_attentions(np.random.default_rng(10), 200, [("fp16", "fp16"), ("fp16", "fp8")])
    found = predict_file(HETERO, write(tmp_path, ATTENTION_HEAD, rows), repeated=False)
    memory_byte_per_s = Soc(HETERO).path_byte_per_s("gpu", "hbm")
    for row, time_us in zip(rows, found.predicted_us, strict=True):
        batch, seq_q, kv_len, _, kv_heads, head_dim, window, _, kv = row
        keys = min(kv_len, window + seq_q - 1) if window else kv_len
        byte = batch * kv_heads * keys * 2 * head_dim * {"fp16": 2, "fp8": 1}[kv]
        if byte < memory.capacity_byte(HETERO.blocks["sram"]):  # anything larger comes from memory as a whole
            continue
        assert time_us * 1e-6 >= byte / memory_byte_per_s


def test_a_benchmark_finds_small_weights_in_the_cache_and_a_model_does_not(tmp_path):
    cached, streamed = (1, 4096, 1024, "fp16"), (1, 32768, 65536, "fp16")  # 8 MB in five copies, and 4 GB
    path = write(tmp_path, GEMM_HEAD, [cached, streamed])
    again, cold = predict_file(HETERO, path).predicted_us, predict_file(HETERO, path, repeated=False).predicted_us
    assert again[0] < cold[0]
    assert again[1] == cold[1]


def test_tiles_that_do_not_fit_name_file_and_line(tmp_path):
    small = attrs.evolve(HETERO, blocks={**HETERO.blocks, "sram": attrs.evolve(HETERO.blocks["sram"], capacity_mb=0.001)})
    path = write(tmp_path, GEMM_HEAD, [(512, 512, 512, "int8")])
    with pytest.raises(MappingError, match=r"operations\.csv: npu: .*line 2"):
        predict_file(small, path)


def test_the_largest_operations_stay_finite(tmp_path):
    big = 10**9
    rows = [(big, big, 1, "fp16"), (1, big, big, "int8"), (big, 1, big, "fp8"), (1, 1, big, "int8"), (1, 1, 1, "fp16")]
    found = predict_file(HETERO, write(tmp_path, GEMM_HEAD, rows))
    assert np.all(np.isfinite(found.predicted_us))
    assert np.all(found.predicted_us > 0)
    cycles = predict_file(HETERO, write(tmp_path, GEMM_HEAD, rows), scalesim3=True).predicted_cycles
    assert np.all(cycles > 0)


# --- SCALE-Sim


def array_of(chip, rows, cols, dataflow):
    npu = attrs.evolve(chip.blocks["npu"], rows=rows, cols=cols, dataflow=dataflow)
    return attrs.evolve(chip, blocks={**chip.blocks, "npu": npu})


def scalesim_groups():
    groups = {}
    for row in read(SCALESIM):
        groups.setdefault((int(row["rows"]), int(row["cols"]), row["dataflow"]), []).append(row)
    return groups


@pytest.mark.parametrize("array", scalesim_groups(), ids=lambda array: "{}x{}-{}".format(*array))
def test_scalesim3_equals_what_scalesim_reports(tmp_path, array):
    """Its own list of GEMMs, with its trailing commas, through the written file."""
    reported = scalesim_groups()[array]
    rows = [(row["layer"], row["M"], row["N"], row["K"], "") for row in reported]
    path = write(tmp_path, "Layer,M,N,K,", rows)
    found = predict_file(array_of(HETERO, *array), path, scalesim3=True)
    assert found.predicted_cycles.tolist() == [int(row["total_cycles"]) for row in reported]
    assert 100.0 * found.mapping_efficiency == pytest.approx([float(row["mapping_eff_pct"]) for row in reported], rel=1e-12)
    write_csv(found, tmp_path / "out.csv")
    written = read(tmp_path / "out.csv")
    assert [row["predicted_cycles"] for row in written] == [row["total_cycles"] for row in reported]
    assert [row["Layer"] for row in written] == [row["layer"] for row in reported]
    clock_ghz = HETERO.blocks["npu"].clock_ghz
    for row in written:
        assert float(row["predicted_us"]) == pytest.approx(int(row["predicted_cycles"]) / clock_ghz / 1e3, rel=1e-6)
        assert row["unit"] == "npu"


def test_scalesim3_has_one_array_and_says_so(tmp_path):
    path = write(tmp_path, "m,n,k", [(64, 64, 64)])
    assert "one array; npu has 4" in predict_file(HETERO, path, scalesim3=True).remarks[0]
    one = attrs.evolve(HETERO, blocks={**HETERO.blocks, "npu": attrs.evolve(HETERO.blocks["npu"], arrays=1)})
    single = predict_file(one, path, scalesim3=True)
    assert single.remarks == ()
    assert single.predicted_cycles[0] == predict_file(HETERO, path, scalesim3=True).predicted_cycles[0]


def test_scalesim3_needs_an_npu_and_gemms(tmp_path):
    with pytest.raises(MappingError, match="gpu_baseline: has no NPU"):
        predict_file(GPU, write(tmp_path, "m,n,k", [(1, 1, 1)]), scalesim3=True)
    with pytest.raises(TableError, match="m, n, k"):
        predict_file(HETERO, write(tmp_path, ATTENTION_HEAD, [(1, 1, 8, 4, 4, 64, 0, "bf16", "bf16")]), scalesim3=True)


def test_a_gemm_table_without_formats_is_refused_outside_scalesim3(tmp_path):
    with pytest.raises(TableError, match="missing column dtype"):
        predict_file(HETERO, write(tmp_path, "m,n,k", [(1, 1, 1)]))


# --- errors against measured times


def measured(folder, head, rows, chip=HETERO, seed=1, blank=0):
    """A table whose measured times are the predictions times known factors, and the errors those make."""
    times = predict_file(chip, write(folder, head, rows)).predicted_us
    factors = np.exp(np.random.default_rng(seed).normal(0.1, 0.4, len(rows)))
    factors[: blank or 0] = np.nan
    cells = [repr(float(value)) if np.isfinite(value) else "" for value in times * factors]
    path = write(folder, f"{head},latency_us", [(*row, cell) for row, cell in zip(rows, cells, strict=True)])
    return predict_file(chip, path), 1.0 / factors[np.isfinite(factors)] - 1.0


def test_statistics_are_those_of_the_textbook(tmp_path):
    rows = random_gemms(np.random.default_rng(11), 101, ["fp16", "fp8", "int8"])
    found, errors = measured(tmp_path, GEMM_HEAD, rows, blank=7)
    overall = accuracies(found)[0]
    absolute = sorted(abs(error) for error in errors.tolist())
    assert (overall.regime, overall.n) == ("all", 94)
    assert overall.mean_absolute_error_fraction == pytest.approx(statistics.fmean(absolute))
    assert overall.median_absolute_error_fraction == pytest.approx(statistics.median(absolute))
    assert overall.p90_absolute_error_fraction == pytest.approx(statistics.quantiles(absolute, n=10, method="inclusive")[-1])
    assert overall.bias_fraction == pytest.approx(statistics.fmean(errors.tolist()))


@pytest.mark.parametrize("kind", ["gemm", "attention"])
def test_regimes_divide_the_operations_without_rest(tmp_path, kind):
    rng = np.random.default_rng(12)
    if kind == "gemm":
        head, rows = GEMM_HEAD, random_gemms(rng, 150, ["fp16", "fp8", "int8"])
    else:
        head, rows = ATTENTION_HEAD, random_attentions(rng, 150, [("fp16", "fp16"), ("fp8", "fp8")])
    found, errors = measured(tmp_path, head, rows)
    overall, *parts = accuracies(found)
    by = {}
    for part in parts:
        by.setdefault(part.regime, []).append(part)
    assert set(by) == {"bound", "unit", "dtype", "m"} if kind == "gemm" else {"bound", "unit", "dtype", "phase", "kv_len"}
    for entries in by.values():
        assert sum(part.n for part in entries) == overall.n == 150
        assert sum(part.n * part.bias_fraction for part in entries) == pytest.approx(errors.sum())
    column = "m" if kind == "gemm" else "kv_len"
    counted = {part.value: part.n for part in by[column]}
    sizes = [int(row[0 if kind == "gemm" else 2]) for row in rows]
    low = 0
    for high, label in zip((*EDGES[column], 10**9), size_labels(column), strict=True):
        assert counted.get(label, 0) == sum(low < size <= high for size in sizes)
        low = high
    assert size_labels("m") == ["<= 16", "17-256", "257-2048", "> 2048"]


def test_without_measured_times_there_are_no_errors(tmp_path):
    found = predict_file(HETERO, write(tmp_path, GEMM_HEAD, [(64, 64, 64, "fp16")]))
    assert accuracies(found) == ()
    assert statistics_table(found) is None
    assert statistics_json(found)["overall"] is None
    empty = predict_file(HETERO, write(tmp_path, f"{GEMM_HEAD},latency_us", [(64, 64, 64, "fp16", "")]))
    assert accuracies(empty) == ()


def test_a_column_that_may_be_meant_as_measured_time_is_mentioned(tmp_path):
    found = predict_file(HETERO, write(tmp_path, f"{GEMM_HEAD},latency_ms", [(64, 64, 64, "fp16", 3)]))
    assert "latency_ms" in found.remarks[0]


def test_table_and_json_show_the_same_errors(tmp_path):
    rows = random_gemms(np.random.default_rng(13), 80, ["fp16", "int8"])
    found, _ = measured(tmp_path, GEMM_HEAD, rows)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(statistics_table(found))
    shown = console.export_text()
    data = json.loads(json.dumps(statistics_json(found), allow_nan=False))
    assert data["operations"] == data["overall"]["n"] == 80
    assert sum(data["unit"].values()) == sum(data["bound"].values()) == 80
    for part in accuracies(found)[1:]:
        entry = data["regimes"][part.regime][part.value]
        assert entry["mean_absolute_error_fraction"] == part.mean_absolute_error_fraction
        assert f"{100 * entry['p90_absolute_error_fraction']:.1f} %" in shown
        assert f"{100 * entry['bias_fraction']:+.1f} %" in shown


#: bars on the median and mean |error| of GEMMs of families that no fit saw
GEMM_BARS = {
    ("a100_sxm", "bf16"): (0.055, 0.08), ("h100_sxm", "bf16"): (0.045, 0.065), ("h200_sxm", "bf16"): (0.05, 0.065),
    ("b200_sxm", "bf16"): (0.075, 0.095), ("l40s", "bf16"): (0.095, 0.135), ("a100_sxm", "sq"): (0.085, 0.125),
    ("h100_sxm", "fp8"): (0.04, 0.055), ("h200_sxm", "fp8"): (0.045, 0.06), ("b200_sxm", "fp8"): (0.075, 0.085),
    ("l40s", "fp8"): (0.085, 0.105),
}  # fmt: skip


@pytest.mark.parametrize(("device", "dtype"), GEMM_BARS)
def test_measured_gemms_of_gpus(tmp_path, device, dtype):
    lines = (HERE / "anchors" / "gpu_gemm.csv").read_text(encoding="utf-8").splitlines()
    measured = [row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if row["device"] == device]
    rows = [tuple(row[key] for key in ("m", "n", "k", "dtype", "latency_us")) for row in measured if row["dtype"] == dtype]
    found = predict_file(load_chip(CHIPS / f"{device}.toml"), write(tmp_path, f"{GEMM_HEAD},latency_us", rows))
    overall = accuracies(found)[0]
    median, mean = GEMM_BARS[device, dtype]
    assert overall.n == len(rows) >= 150
    assert overall.median_absolute_error_fraction < median
    assert overall.mean_absolute_error_fraction < mean
    assert abs(overall.bias_fraction) < mean / 2


#: bar on the mean |error|, looser: kernels of attention differ between library versions by more than a tenth
BARS = {"gpu_attention": 0.2}


@pytest.mark.parametrize("device", ["h100_sxm", "a100_sxm"])
@pytest.mark.parametrize("anchor", BARS)
def test_measured_operations_of_gpus(tmp_path, anchor, device):
    lines = (HERE / "anchors" / f"{anchor}.csv").read_text(encoding="utf-8").splitlines()
    measured = [row for row in csv.DictReader(line for line in lines if not line.startswith("#")) if row["device"] == device]
    assert len(measured) >= 200
    names = [*ATTENTION_HEAD.split(","), "latency_us"]
    rows = [tuple(row[name] for name in names) for row in measured]
    found = predict_file(load_chip(CHIPS / f"{device}.toml"), write(tmp_path, ",".join(names), rows))
    overall = accuracies(found)[0]
    assert overall.n == len(measured)
    assert overall.mean_absolute_error_fraction < BARS[anchor]
    assert abs(overall.bias_fraction) <= overall.mean_absolute_error_fraction


# --- what is written


def test_columns_are_kept_and_added_in_order(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(' note ,M,n,k,dtype,\n"two, words",64,64,64, FP16 ,\n\n,8,8,8,sq,\n', encoding="utf-8")
    found = predict_file(HETERO, path)
    write_csv(found, tmp_path / "out.csv")
    rows = read(tmp_path / "out.csv")
    assert list(rows[0]) == ["note", "M", "n", "k", "dtype", "predicted_us", "bound", "unit", "compute_format"]
    assert [row["note"] for row in rows] == ["two, words", ""]
    assert [float(row["predicted_us"]) for row in rows] == pytest.approx(found.predicted_us.tolist(), rel=1e-6)
    assert [row["bound"] for row in rows] == list(found.bound)


def test_predicting_an_output_again_changes_nothing(tmp_path):
    path = write(tmp_path, GEMM_HEAD, random_gemms(np.random.default_rng(14), 50, ["fp16", "int8"]))
    write_csv(predict_file(HETERO, path), tmp_path / "once.csv")
    write_csv(predict_file(HETERO, tmp_path / "once.csv"), tmp_path / "twice.csv")
    assert (tmp_path / "twice.csv").read_bytes() == (tmp_path / "once.csv").read_bytes()
    write_csv(predict_file(HETERO, tmp_path / "once.csv"), tmp_path / "once.csv")  # onto itself
    assert (tmp_path / "twice.csv").read_bytes() == (tmp_path / "once.csv").read_bytes()


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    found = predict_file(HETERO, write(tmp_path, GEMM_HEAD, [(64, 64, 64, "fp16")] * 3))
    target = tmp_path / "out.csv"
    target.write_text("old", encoding="utf-8")
    broken = attrs.evolve(found, bound=found.bound[:2])  # fails on the third row, after the first two
    with pytest.raises(ValueError, match="zip"):
        write_csv(broken, target)
    assert target.read_text(encoding="utf-8") == "old"
    with pytest.raises(OutputError):
        write_csv(found, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["operations.csv", "out.csv"]


@pytest.mark.parametrize("way", ["trailing comma", "no final newline", "blank lines", "CRLF", "BOM"])
def test_the_same_list_gives_the_same_result_however_it_is_written(tmp_path, way):
    rows = random_gemms(np.random.default_rng(15), 30, ["fp16", "int8", "fp8"])
    path = write(tmp_path, GEMM_HEAD, rows)
    text = path.read_text(encoding="utf-8")
    other = tmp_path / "other.csv"
    other.write_bytes({
        "trailing comma": text.replace("\n", ",\n"),
        "no final newline": text.rstrip("\n"),
        "blank lines": text.replace("\n", "\n\n"),
        "CRLF": text.replace("\n", "\r\n"),
        "BOM": "\ufeff" + text,
    }[way].encode())  # fmt: skip
    for scalesim3 in (False, True):
        outputs = []
        for file in (path, other):
            write_csv(predict_file(HETERO, file, scalesim3), tmp_path / "out.csv")
            outputs.append((tmp_path / "out.csv").read_bytes())
        assert outputs[0] == outputs[1]


def test_overrides_of_the_chip_count(tmp_path):
    path = write(tmp_path, GEMM_HEAD, [(4096, 4096, 4096, "int8")])
    clock_ghz = HETERO.blocks["npu"].clock_ghz
    slow = load_chip(CHIPS / "hetero_v1.toml", {"npu.clock_ghz": clock_ghz / 4.0})
    assert predict_file(HETERO, path).bound == ("matrix",)
    assert predict_file(slow, path).predicted_us[0] == pytest.approx(4.0 * predict_file(HETERO, path).predicted_us[0], rel=0.01)
