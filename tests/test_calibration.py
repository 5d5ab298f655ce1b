"""Calibration: known constants come back, what no row tells is said, chip files stay valid, bad input is refused."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from archmodel.calibration.constants import CONSTANTS, constants_of, value, with_values
from archmodel.calibration.edit import with_numbers
from archmodel.calibration.fit import fit
from archmodel.calibration.run import calibrate
from archmodel.cli import main
from archmodel.errors import TableError
from archmodel.holdout import fit_mask
from archmodel.predict import predict_file
from archmodel.spec.chip import DramSpec, GpuSpec, SramSpec
from archmodel.spec.toml import load_chip

CHIPS = Path(__file__).parents[1] / "chips"
H100 = load_chip(CHIPS / "h100_sxm.toml")
TRUTH = {
    "gpu.matrix_efficiency": 0.8, "gpu.matmul_stream_efficiency": 0.8, "gpu.kernel_floor_us": 2.4,
    "gpu.kernel_ramp_us": 1.2, "gpu.split_floor_us": 1.7, "gpu.reduction_floor_us": 5.0,
    "l2.bandwidth_byte_per_cycle": 2900.0,
}  # fmt: skip


def write_gemms(path, shapes, dtypes, chip, noise=0.0):
    """A table as a benchmark of `chip` would give it, with `noise` of the logarithm."""
    rows = [(*shape, dtype) for dtype in dtypes for shape in shapes]
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([("m", "n", "k", "dtype"), *rows])
    times = predict_file(chip, path).predicted_us * np.exp(noise * np.random.default_rng(2).standard_normal(len(rows)))
    with path.open("w", encoding="utf-8") as file:
        table = [(*row, f"{time_us:.6g}") for row, time_us in zip(rows, times, strict=True)]
        csv.writer(file).writerows([("m", "n", "k", "dtype", "latency_us"), *table])
    return path


def gemms(seed, families, tokens=(1, 16, 128, 512, 2048, 8192)):
    rng = np.random.default_rng(seed)
    pairs = [tuple(int(64 * 2**power) for power in pair) for pair in rng.uniform(2, 9, (families, 2))]
    return [(m, n, k) for n, k in pairs for m in tokens]


@pytest.fixture(scope="module")
def recovered(tmp_path_factory):
    path = tmp_path_factory.mktemp("synthetic") / "gemm.csv"
    write_gemms(path, gemms(1, 120), ("bf16", "fp8"), with_values(H100, TRUTH), noise=0.01)
    start = time.perf_counter()
    found = calibrate(H100, [path], seed=5)
    return found, time.perf_counter() - start


def test_known_constants_are_recovered(recovered):
    found, _ = recovered
    for constant in found.constants:
        if constant.key in TRUTH:
            assert constant.after == pytest.approx(TRUTH[constant.key], rel=0.12), constant.key
            assert constant.low <= constant.after <= constant.high
            assert not constant.warning
    assert {constant.key for constant in found.constants} >= set(TRUTH)


def test_errors_fall_to_the_noise_on_rows_that_the_fit_did_not_see(recovered):
    found, _ = recovered
    _, before, after = found.errors[0]
    assert before.regime == "all"
    assert before.mean_absolute_error_fraction > 0.05
    assert after.mean_absolute_error_fraction < 0.02
    assert abs(after.bias_fraction) < 0.01
    assert before.n == after.n < 2 * 120 * 6


def test_it_is_quick(recovered):
    """60 s for 6,000 rows; this table has 1,440, and machines are busy."""
    assert recovered[1] < 60


def test_the_same_seed_gives_the_same_constants(tmp_path):
    path = write_gemms(tmp_path / "gemm.csv", gemms(3, 40), ("bf16",), with_values(H100, TRUTH), noise=0.02)
    once, again, other = (calibrate(H100, [path], seed=seed).values for seed in (5, 5, 6))
    assert once == again
    assert once != other


def test_what_the_rows_do_not_tell_is_said_and_left(tmp_path):
    """Single tokens never keep the matrix units busy until the power limit acts, and no row quantises."""
    path = write_gemms(tmp_path / "gemm.csv", gemms(4, 120, tokens=(1, 2)), ("bf16",), H100)
    found = {constant.key: constant for constant in calibrate(H100, [path]).constants}
    untold = found["gpu.sustained_clock_share"]
    assert "cannot be told" in untold.warning
    assert untold.after == untold.before == value(H100, untold.key)
    assert not untold.fitted
    assert not any("reduction" in key for key in found)
    assert found["gpu.matmul_stream_efficiency"].fitted


def test_the_fit_and_the_report_share_no_family(tmp_path):
    path = write_gemms(tmp_path / "gemm.csv", gemms(5, 60), ("bf16",), H100)
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    seen = fit_mask("gemm", {name: [float(row[name]) for row in rows] for name in ("n", "k")}, seed=9)
    assert calibrate(H100, [path], seed=9).errors[0][1].n == np.count_nonzero(~seen)


def test_attention_tells_the_constants_of_attention(tmp_path):
    rng = np.random.default_rng(6)
    rows = []
    for _ in range(400):
        heads, queries = (
            int(rng.choice((8, 16, 24, 32, 48, 64, 96))),
            int(2 ** rng.integers(0, 12)) if rng.random() < 0.5 else 1,
        )
        keys = max(queries, int(2 ** rng.integers(5, 15)))
        kv_heads = int(rng.choice([part for part in (1, 2, 4, 8, 16) if heads % part == 0]))
        rows.append((int(rng.choice((1, 4, 16))), queries, keys, heads, kv_heads, 128, 0, "bf16", "bf16"))
    head = ("batch", "seq_q", "kv_len", "heads", "kv_heads", "head_dim", "window", "attn_dtype", "kv_dtype")
    path = tmp_path / "attention.csv"
    truth = {"gpu.attention_efficiency": 0.4, "gpu.attention_floor_us": 9.0, "gpu.attention_context_floor_us": 12.0}
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    times = predict_file(with_values(H100, truth), path).predicted_us.tolist()
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([(*head, "latency_us"), *((*row, f"{t:.6g}") for row, t in zip(rows, times, strict=True))])
    found = {constant.key: constant.after for constant in calibrate(H100, [path], share=0.5).constants}
    for key, number in truth.items():
        assert found[key] == pytest.approx(number, rel=0.1), key
    assert not any(constant.name in key for constant in constants_of("matmul") for key in found)


# --- the fit itself


def test_a_fit_of_a_product_of_powers_is_exact():
    """log y = a log x + b log z: least absolute errors ignore a tenth of wild rows."""
    rng = np.random.default_rng(7)
    design, truth = rng.normal(size=(300, 2)), np.array([0.7, -0.4])
    wild = np.where(np.arange(300) % 10 == 0, 3.0, 0.0)
    low, high, ticks = np.full(2, -3.0), np.full(2, 3.0), []
    found = fit(lambda at: design @ (at - truth) + wild, np.arange(300) // 10, np.zeros(2), low, high, seed=1, steps=25,
                tick=lambda: ticks.append(1))  # fmt: skip
    np.testing.assert_allclose(found.at, truth, atol=0.02)
    assert np.all(found.error < 0.1)
    assert ticks


def test_constants_are_numbers_of_the_specs_within_their_range():
    for constant in CONSTANTS:
        spec = {"gpu": GpuSpec, "buffer": SramSpec, "memory": DramSpec}[constant.block]
        assert hasattr(spec, constant.name) or constant.name in spec.__annotations__
        assert 0 < constant.low < constant.high
        key = constant.key("gpu", H100.blocks["gpu"])
        assert constant.low <= value(H100, key) <= constant.high


# --- the file


def test_text_of_the_chip_stays_but_for_its_numbers():
    text = '# a\n[gpu]\nsource = """one; \\\ntwo"""\nx = 1.0  # why\ny = 2\n\n# b\n[l2]\nsource = "three"\n'
    values, sources = {"gpu.x": 1.23456, "gpu.z": 7.0, "l2.w": 0.5}, {"gpu": "", "l2": "", "hbm": "four"}
    new = with_numbers(text, values, sources, "9 rows")
    assert new == (
        '# a\n[gpu]\nsource = """one; \\\ntwo; fitted: by calibrate: x, z on 9 rows"""\nx = 1.235  # why\ny = 2\nz = 7\n\n# b\n'
        '[l2]\nsource = "three; fitted: by calibrate: w on 9 rows"\nw = 0.5\n'
    )
    assert with_numbers(new, values, sources, "9 rows") == new
    added = tomllib.loads(with_numbers(text, {"hbm.v": 3.0}, sources, "9 rows"))
    assert added["hbm"] == {"v": 3.0, "source": "four; fitted: by calibrate: v on 9 rows"}


def test_command_writes_a_valid_chip_and_says_what_it_did(tmp_path, capsys):
    table = write_gemms(tmp_path / "gemm.csv", gemms(8, 40), ("bf16",), with_values(H100, TRUTH))
    output = tmp_path / "deep" / "new.toml"
    assert main(["calibrate", str(CHIPS / "h100_pcie.toml"), str(table), "-o", str(output), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    chip = load_chip(output)  # it extends h100_sxm.toml, two folders away
    for constant in said["constants"]:
        assert value(chip, constant["key"]) == constant["after"]
    assert "fitted: by calibrate: feed_byte_per_core_per_cycle" in chip.blocks["gpu"].source
    assert "gemm.csv, seed 5" in chip.blocks["gpu"].source
    assert output.read_text(encoding="utf-8").splitlines()[0] == (CHIPS / "h100_pcie.toml").read_text().splitlines()[0]
    assert main(["calibrate", str(output), str(table), "-o", str(output)]) == 0  # onto itself
    out = capsys.readouterr().out
    assert "90% confidence" in out
    assert "unseen rows of" in out
    assert load_chip(output).blocks["gpu"].source.count("by calibrate") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,k,dtype\n1,2,3,bf16\n", "needs the column latency_us"),
        ("m,n,k,dtype,latency_us\n1,2,3,bf16,\n", "needs the column latency_us"),
        ("m,n,k,dtype,latency_us\n1,2,3,bf16,4\n", "each side of the split needs"),
        ("m,n,k,dtype,latency_us\n1,2,3,bf16,-4\n", "must be a number above 0"),
        ("op,num_gpus,message_bytes,latency_us\nall_reduce,2,1024,9\n", "tables of GEMMs and of attention"),
    ],
)
def test_bad_tables_are_refused_and_nothing_is_written(tmp_path, capsys, text, said):
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=said):
        calibrate(H100, [path])
    assert main(["calibrate", str(CHIPS / "h100_sxm.toml"), str(path), "-o", str(tmp_path / "new.toml")]) == 2
    assert "bad.csv" in capsys.readouterr().err
    assert not (tmp_path / "new.toml").exists()


def test_a_chip_without_a_gpu_is_refused(tmp_path, capsys):
    path = write_gemms(tmp_path / "gemm.csv", gemms(9, 30), ("bf16",), H100)
    assert main(["calibrate", str(CHIPS / "tpu_v4i.toml"), str(path), "-o", str(tmp_path / "new.toml")]) == 2
    assert "has no GPU" in capsys.readouterr().err
