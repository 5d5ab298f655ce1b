"""The command line: what it prints where, what it writes, how it takes overrides, and how it ends."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from scenes import ROOT

import archmodel
from archmodel import evaluate, load_chip, load_workload
from archmodel.cli import main
from archmodel.report.trace import read_trace

CHIP, LLM, CHAT = (str(ROOT / path) for path in ("chips/hetero_v1.toml", "workloads/llm_100b.toml", "workloads/chat_8b.toml"))
ENCODER = str(ROOT / "workloads/risk_encoder.toml")
CONFIG = str(ROOT / "tests/anchors/model_configs/Llama-3.1-8B.json")
UNITLESS = {"batch", "input_tokens", "output_tokens", "utilisation", "segments_by_phase_s", "capacity", "limits", "peaks",
            "cost"}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command line in an empty folder: `run(...)` gives code, output and errors, `run.json(...)` the parsed output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    def as_json(*arguments: str) -> dict[str, Any]:
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    run.json = as_json  # type: ignore[attr-defined]
    return run


def test_eval_json_holds_what_scripts_rely_on(run: Any) -> None:
    found = run.json("eval", CHIP, LLM, "-o", "out")
    for key in ("time_to_first_token_s", "time_per_output_token_s", "output_tokens_per_s", "power_w", "tokens_per_joule"):
        assert found[key] > 0.0
    assert sum(found["segments_s"].values()) == pytest.approx(found["total_s"], rel=1e-9)
    assert sum(found["energy_j"].values()) == pytest.approx(found["total_j"], rel=1e-9)
    assert found["output_tokens_per_s"] / found["power_w"] == pytest.approx(found["tokens_per_joule"], rel=1e-9)
    assert set(found["bottleneck"]) == {"prefill", "decode"}
    assert {"gpu", "npu", "hbm", "noc", "pcie"} <= set(found["utilisation"])
    assert all(0.0 <= value <= 1.0 for value in found["utilisation"].values())
    assert any("8 MACs a unit and cycle" in line for line in found["assumptions"])
    assert found["kv_cache_policy"].startswith("capped")
    trace = read_trace(found["trace_file"])
    assert float(trace.numbers("summary", "total_s")) == found["total_s"]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "hetero_v1--llm_100b.breakdown.png", "hetero_v1--llm_100b.h5", "hetero_v1--llm_100b.roofline.png",
        "hetero_v1--llm_100b.timeline.png",
    ]  # fmt: skip


def test_every_quantity_has_its_unit_in_its_key(run: Any) -> None:
    found = run.json("eval", CHIP, CHAT, "--no-report")
    suffixes = ("_s", "_j", "_w", "_per_s", "_byte", "_fraction", "_per_joule", "joules_per_token", "joules_per_sequence")
    for key, value in found.items():
        numeric = isinstance(value, int | float) or (
            isinstance(value, dict) and not isinstance(next(iter(value.values()), ""), str)
        )
        assert not numeric or key in UNITLESS or key.endswith(suffixes), key


def test_eval_without_report_writes_nothing(run: Any, tmp_path: Path) -> None:
    found = run.json("eval", CHIP, CHAT, "--no-report")
    assert found["trace_file"] is None
    assert list(tmp_path.iterdir()) == []


def test_tables_say_what_adds_up(run: Any) -> None:
    code, out, err = run("eval", CHIP, CHAT, "--no-report")
    assert (code, err) == (0, "")
    for words in ("time to first token", "Where the time goes", "Units", "Memory and links", "Capacity", "Energy by component",
                  "Assumptions that this rests on", "MISSED", "tokens/J"):  # fmt: skip
        assert words in out
    sums = [line for line in out.splitlines() if line.startswith("sum")]
    assert [line.count("100.0") for line in sums] == [3, 1, 1]
    assert "\x1b" not in out


def test_encoder_has_no_token_after_the_first(run: Any) -> None:
    found = run.json("eval", CHIP, ENCODER, "--no-report")
    assert found["time_per_output_token_s"] is None
    assert found["output_tokens_per_s"] is None
    assert found["limits"]["latency"]["kept"] == (found["total_s"] <= 0.05)
    assert "time of the whole pass" in run("eval", CHIP, ENCODER, "--no-report")[1]


def test_set_reaches_chip_and_workload(run: Any) -> None:
    base = run.json("eval", CHIP, CHAT, "--no-report")
    slow = run.json("eval", CHIP, CHAT, "--no-report", "--set", "npu.clock_ghz=0.7324")
    assert slow["peaks"]["npu"]["int8"] == pytest.approx(base["peaks"]["npu"]["int8"] / 2)
    assert slow["time_to_first_token_s"] > base["time_to_first_token_s"]
    one = run.json("eval", CHIP, CHAT, "--no-report", "--set", "request.batch=1")
    assert one == run.json("eval", CHIP, CHAT, "--no-report", "--batch", "1")
    assert (one["batch"], base["batch"]) == (1, 4)


@pytest.mark.parametrize("workload", [LLM, CHAT, CONFIG])
def test_set_of_precision_lies_over_what_counts(run: Any, workload: str) -> None:
    """One format changes and the others stay, whether the workload has formats of its own or takes the chip's."""
    base = run.json("eval", CHIP, workload, "--no-report")
    narrow = run.json("eval", CHIP, workload, "--no-report", "--set", "precision.kv_cache=int8")

    def held(found: dict[str, Any], what: str) -> float:
        return sum(part["byte"] for part in found["capacity"]["hbm"]["resident"] if part["what"] == what)

    assert held(narrow, "weights") == held(base, "weights")
    assert held(narrow, "KV cache") == held(base, "KV cache") / 2


def test_set_of_placement_lies_over_the_chips(run: Any) -> None:
    moved = run.json("eval", CHIP, CHAT, "--no-report", "--set", "placement.feed_forward=gpu")
    assert moved["busy_s"]["npu"] == 0.0
    assert run.json("eval", CHIP, CHAT, "--no-report", "--set", "placement.fusion=true") == run.json(
        "eval", CHIP, CHAT, "--no-report"
    )


def test_set_gives_what_evolve_gives(run: Any) -> None:
    chip = load_chip(CHIP)
    npu = attrs.evolve(chip.blocks["npu"], rows=8, cols=8, dataflow="ws")
    result = evaluate(attrs.evolve(chip, blocks={**chip.blocks, "npu": npu}), load_workload(LLM))
    found = run.json("eval", CHIP, LLM, "--no-report", "--set", "npu.rows=8", "--set", "npu.cols=8", "--set", "npu.dataflow=ws")
    assert found["total_s"] == result.total_s
    assert found["energy_j"] == result.energy_j


def test_eval_of_a_config_json(run: Any) -> None:
    found = run.json("eval", CHIP, CONFIG, "--batch", "8", "--input-tokens", "100", "--output-tokens", "20", "--no-report")
    assert (found["batch"], found["input_tokens"], found["output_tokens"]) == (8, 100, 20)
    bert = str(ROOT / "tests/anchors/model_configs/BERT-base-uncased.json")
    assert run.json("eval", CHIP, bert, "--no-report")["output_tokens"] == 0


def test_every_token_agrees_with_the_samples(run: Any) -> None:
    sampled = run.json("eval", CHIP, CHAT, "--no-report")
    every = run.json("eval", CHIP, CHAT, "--no-report", "--every-token")
    assert sampled["total_s"] == pytest.approx(every["total_s"], rel=0.005)


def test_explain_prints_formulas(run: Any) -> None:
    code, out, _ = run("eval", CHIP, LLM, "--no-report", "--explain")
    assert code == 0
    assert "= 2 * 1 * 8192 * 65536 * 10240" in out
    assert "= 8 * 80 * 2 * 8 * 128 * 1280 * 2" in out
    topics = run.json("eval", CHIP, LLM, "--no-report", "--explain")["explanation"]
    formulas = [formula for topic in topics for formula in topic["formulas"]]
    assert len(formulas) > 20
    for formula in formulas:
        assert math.isclose(eval(formula["expression"], {"__builtins__": {}}), formula["value"], rel_tol=1e-6)


def test_the_trace_holds_both_files_and_the_command(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["archmodel", "eval", "a b.toml", "--set", "npu.rows=16"])
    run("eval", CHIP, ENCODER, "--set", "npu.rows=16")
    attributes = read_trace("reports/hetero_v1--risk_encoder.h5").attributes
    assert attributes["chip_toml"] == Path(CHIP).read_text(encoding="utf-8")
    assert attributes["workload_toml"] == Path(ENCODER).read_text(encoding="utf-8")
    assert attributes["command"] == "python -m archmodel eval 'a b.toml' --set npu.rows=16"
    assert json.loads(attributes["chip_resolved_json"])["blocks"]["npu"]["rows"] == 16
    assert attributes["archmodel_version"] == archmodel.__version__


def test_paths_with_spaces_and_other_scripts(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "мои чипы 芯片 (1)"
    folder.mkdir()
    chip, workload = folder / "chip é.toml", folder / "нагрузка.toml"
    chip.write_text(Path(CHIP).read_text(encoding="utf-8").replace('name = "hetero_v1"', 'name = "芯片 a/b"'), encoding="utf-8")
    workload.write_text(Path(ENCODER).read_text(encoding="utf-8"), encoding="utf-8")
    found = run.json("eval", str(chip), str(workload), "-o", str(folder / "out put"))
    assert found["trace_file"] == str(folder / "out put" / "芯片_a_b--risk_encoder.h5")
    assert read_trace(found["trace_file"]).attributes["chip"] == "芯片 a/b"


def test_show_chip(run: Any) -> None:
    found = run.json("show", CHIP)
    assert found["peaks"]["gpu"]["fp16"] == 4096 * 2 * 1.4e9
    assert found["peaks"]["npu"]["int8"] == pytest.approx(12e12, rel=1e-3)
    assert found["bandwidth_byte_per_s"]["hbm"] == pytest.approx(1.2e12, rel=1e-9)
    assert found["capacity_byte"] == {"sram": 128e6, "hbm": 256e9, "ddr": 512e9}
    assert any("9 TB/s" in line for line in found["remarks"])
    smaller = run.json("show", CHIP, "--set", "npu.rows=8", "--set", "npu.cols=8")
    assert smaller["peaks"]["npu"]["int8"] == found["peaks"]["npu"]["int8"] / 16
    out = run("show", CHIP)[1]
    assert "32 cores x 128 x 2 x 1.4 GHz" in out
    assert "4 x 32 x 32 x 1 x 2 x 1.4648 GHz" in out
    assert "would bring about 9 TB/s" in out


def test_show_model(run: Any) -> None:
    found = run.json("show", CONFIG)
    assert found["total_parameters"] == found["active_parameters"] == 8_030_261_248
    assert found["weight_bytes"] == 2 * 8_030_261_248
    assert found["kv_cache_bytes_per_token"] == found["kv_cache_bytes_per_token_unbounded"] == 131_072
    assert found["state_bytes_per_sequence"] == 0
    assert run.json("show", CONFIG, "--set", "precision.kv_cache=int8")["kv_cache_bytes_per_token"] == 65_536
    assert run.json("show", CONFIG, "--set", "precision.weights=int8")["kv_cache_bytes_per_token"] == 131_072
    assert run.json("show", LLM)["total_parameters"] == pytest.approx(100e9, rel=0.01)
    out = run("show", CONFIG)[1]
    assert "8,030,261,248" in out
    assert "131,072 B" in out


def test_show_names_the_tables_that_it_looks_for(run: Any, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[tool]\nx = 1\n")
    code, out, err = run("show", "other.toml")
    assert (code, out) == (2, "")
    assert "[chip]" in err
    assert "it has tool" in err


def test_predict(run: Any, tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("m,n,k,dtype\n128,128,128,fp16\n8,4096,4096,int8\n")
    code, out, err = run("predict", CHIP, "ops.csv", "-o", "out.csv")
    assert (code, err) == (0, "")
    header, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith("m,n,k,dtype,predicted_us,bound")
    assert len(rows) == 2
    out = run("predict", CHIP, "ops.csv")[1]
    assert "predicted_us" in out
    slower = run("predict", CHIP, "ops.csv", "--set", "gpu.clock_ghz=0.1")[1]
    assert slower != out
    assert run.json("predict", CHIP, "ops.csv")["operations"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "absent.toml", LLM], "absent.toml"),
        (["eval", CHIP, "absent.toml"], "absent.toml"),
        (["eval", CHIP, CHIP], "workload"),
        (["eval", CHIP, LLM, "--set", "npu.clok_ghz=1"], "did you mean clock_ghz?"),
        (["eval", CHIP, LLM, "--set", "npu.rows=0"], "npu.rows: 0, must be > 0"),
        (["eval", CHIP, LLM, "--set", "nonsense"], "must look like table.key=value"),
        (["eval", CHIP, LLM, "--batch", "0"], "request.batch: 0, must be > 0"),
        (["eval", CHIP, LLM, "--set", "hbm.capacity_gb=1"], "does not fit"),
        (["eval", CHIP, LLM, "--set", "precision.attention=fp99"], "precision.attention"),
        (["eval", CHIP, CONFIG, "--set", "model.layers=2"], "cannot be set on a config.json"),
        (["show", "absent.json"], "absent.json"),
        (["predict", CHIP, "absent.csv"], "absent.csv"),
        (["eval", CHIP], "Missing argument"),
        (["eval", CHIP, LLM, "--batch", "many"], "--batch"),
        (["evaluate", CHIP, LLM], "evaluate"),
    ],
)
def test_what_the_user_can_mend_ends_in_code_2(run: Any, tmp_path: Path, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nowhere", "/dev/null/x"])
def test_output_that_cannot_be_written_ends_in_code_2(run: Any, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("mine")
    code, out, err = run("eval", CHIP, ENCODER, "-o", folder)
    assert (code, out) == (2, "")
    assert folder.split("/x")[0].split("/below")[0] in err
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_in_the_place_of_the_trace(run: Any, tmp_path: Path) -> None:
    (tmp_path / "reports" / "hetero_v1--risk_encoder.h5").mkdir(parents=True)
    code, _, err = run("eval", CHIP, ENCODER)
    assert code == 2
    assert "is a folder" in err
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["hetero_v1--risk_encoder.h5"]


def test_interrupt_ends_in_code_130(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("archmodel.report.write.write_trace", interrupted)
    code, out, _ = run("eval", CHIP, ENCODER, "-o", "out")
    assert (code, out) == (130, "")
    assert list((tmp_path / "out").iterdir()) == []


def test_help(run: Any) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(word in out for word in ("eval", "show", "predict"))


def _subprocess(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(archmodel.__file__).parents[1])}
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip


def test_output_is_pure_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    python = f"'{sys.executable}' -m archmodel"
    done = _subprocess(f"{python} eval '{CHIP}' '{CHAT}' --json", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["trace_file"] == "reports/hetero_v1--chat_8b.h5"
    assert _subprocess(f"{python} show '{CHIP}' | head -1", tmp_path).stderr == ""
    assert _subprocess(f"{python} show '{CHIP}' --json >&-", tmp_path).stderr == ""
    full = _subprocess(f"{python} show '{CHIP}' >/dev/full", tmp_path)
    assert (full.returncode, full.stderr) == (2, "error: standard output: No space left on device\n")


def test_the_package_imports_nothing_heavy(tmp_path: Path) -> None:
    for module, heavy in (("archmodel", ("numpy", "numba", "h5py", "matplotlib", "rich")),
                          ("archmodel.cli", ("numpy", "numba", "h5py", "matplotlib"))):  # fmt: skip
        code = f"import {module}, sys; print([m for m in {heavy} if m in sys.modules])"
        assert _subprocess(f"'{sys.executable}' -c \"{code}\"", tmp_path).stdout == "[]\n", module


def test_evaluate_stays_the_function_once_its_module_is_imported() -> None:
    from archmodel.result import Result

    assert isinstance(archmodel.evaluate(load_chip(CHIP), load_workload(ENCODER)), Result)
    assert archmodel.evaluate is evaluate
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        archmodel.nothing  # noqa: B018


def _in_folder(arguments: tuple[str, str, str]) -> int:
    chip, workload, folder = arguments
    return main(["eval", chip, workload, "-o", folder, "--quiet", "--json"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_eight_at_once_in_one_folder_give_what_one_after_another_gives(tmp_path: Path) -> None:
    """Two of each of four runs at the same time, into the same files."""
    workloads = [ENCODER, CHAT, str(ROOT / "workloads/vision_encoder.toml"), str(ROOT / "workloads/llama3_8b.toml")]
    serial, parallel = str(tmp_path / "serial"), str(tmp_path / "parallel")
    assert [_in_folder((CHIP, workload, serial)) for workload in workloads] == [0] * 4
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert pool.map(_in_folder, [(CHIP, workload, parallel) for workload in workloads * 2], chunksize=1) == [0] * 8
    names = sorted(path.name for path in Path(serial).iterdir())
    assert sorted(path.name for path in Path(parallel).iterdir()) == names
    for name in names:
        one, other = Path(serial, name).read_bytes(), Path(parallel, name).read_bytes()
        assert one == other, name
    assert len(names) == 16
    assert np.isfinite(float(read_trace(Path(parallel, names[1])).numbers("summary", "total_s")))
