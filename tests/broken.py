"""Broken files: good ones of the repository, each with a few changes and the words that the message about it must hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CHIP = ROOT / "chips/hetero_v1.toml"
WORKLOAD = ROOT / "workloads/llm_100b.toml"
ENCODER = ROOT / "workloads/risk_encoder.toml"
CONFIG = ROOT / "workloads/models/llama-3.1-8b.json"

Changes = dict[str, str | None]


def edited(file: Path, changes: Changes) -> str:
    """TOML of `file` with each `table.key` set to raw TOML, and each `table` to a body; None takes them out."""
    parts = re.split(r"(?m)^(?=\[)", file.read_text(encoding="utf-8"))
    tables = {part[1 : part.index("]")]: part for part in parts[1:]}
    for dotted, value in changes.items():
        table, _, key = dotted.partition(".")
        if not key:
            tables[table] = "" if value is None else f"[{table}]\n{value}\n"
            continue
        line = "" if value is None else f"{key} = {value}\n"
        body, found = re.subn(rf"(?m)^{re.escape(key)} = .*\n", lambda _, line=line: line, tables[table])
        assert found or value is not None, f"{dotted} is not in {file}"
        tables[table] = body if found else body + line
    return "".join(tables.values())


LINK = 'kind = "link"\njoins = [{}]\nprotocol = "wire"\nlanes = 1\nlane_rate_gt_per_s = 1\nlatency_ns = 1\nsource = "test"'


CIM = """kind = "cim"
macros = 64
rows = 64
cols = 64
cell_bit = 1
input_bit = 1
clock_ghz = 1
formats = ["int8"]
converters = 8
conversion_ghz = 1
write_bit_per_cycle = 64
vector_op_per_cycle = 64
buffer = "sram"
buffer_share = 0.5
memory = "hbm"
source = "test"
"""
EVENTS = """kind = "neuromorphic"
cores = 64
clock_ghz = 1
synapse_op_per_core_per_cycle = { int8 = 1 }
synapse_energy_pj = { int8 = 1 }
sparsity_fraction = 0.5
core_weight_kib = 64
vector_op_per_cycle = 64
event_per_cycle = 1
buffer = "sram"
buffer_share = 0.5
memory = "hbm"
source = "test"
"""

#: name, changes to the chip, words of the message
CHIPS: list[tuple[str, Changes, tuple[str, ...]]] = [
    ("typo in a key", {"npu.colz": "3", "npu.cols": None}, ("npu.colz: unknown key, did you mean cols?", "npu.cols: missing")),
    ("key of another tool", {"hbm.hbm_bandwith": "1200"}, ("hbm.hbm_bandwith: unknown key", "known:", "stream_efficiency")),
    ("typo in a table", {"placment": 'attention = "gpu"'}, ("placment: unknown table, did you mean placement?",)),
    ("typo in a kind", {"hbm.kind": '"drma"'}, ('hbm.kind: "drma", must be one of gpu, npu', "did you mean dram?")),
    ("kind is a list", {"hbm.kind": '["dram"]'}, ('hbm.kind: ["dram"], must be one of',)),
    ("control codes", {"npu": '"\\u001b[2J\\n" = 1', '"\\n"': ""}, (r"npu.\x1b[2J\n: unknown key", r"\n: unknown table")),
    ("no kind", {"cache": "capacity_mb = 1"}, ("cache: unknown table, add kind = one of gpu",)),
    ("name of a block", {'"a/b"': LINK.format('"gpu", "sram"')}, ('"a/b": must be a name of letters',)),
    ("string for a number", {"npu.rows": '"32"'}, ('npu.rows: "32", must be an integer',)),
    ("bool for a number", {"npu.rows": "true"}, ("npu.rows: true, must be an integer",)),
    ("float for an integer", {"npu.rows": "32.0"}, ("npu.rows: 32.0, must be an integer",)),
    ("table for a number", {"npu.rows": "{a = 1}"}, ('npu.rows: {"a": 1}, must be an integer',)),
    ("date for a number", {"npu.clock_ghz": "2024-01-01"}, ('npu.clock_ghz: "2024-01-01", must be a number',)),
    ("number for a bool", {"npu.double_buffered": "1"}, ("npu.double_buffered: 1, must be true or false",)),
    ("number for a string", {"npu.buffer": "5"}, ("npu.buffer: 5, must be a string",)),
    ("number for a table", {"npu.macs_per_pe_per_cycle": "8"}, ("npu.macs_per_pe_per_cycle: 8, must be a table",)),
    ("string for a list", {"noc.joins": '"gpu"'}, ('noc.joins: "gpu", must be a list of strings',)),
    ("string for a list of numbers", {"gpu.tile_sizes": '["64"]'}, ('gpu.tile_sizes: ["64"], must be a list of integers',)),
    ("list out of order", {"gpu.tile_sizes": "[128, 64]"}, ("gpu.tile_sizes: [128, 64], must be ascending",)),
    ("array of tables", {"hbm": None, "[hbm]": ""}, ("hbm: [{}], must be a table",)),
    ("cost without a source", {"cost": "dies = 0"}, ("cost.source: missing", "cost.dies: 0, must be > 0")),
    ("cost of no block", {"cost.area_mm2": "{ gpuu = 1 }"}, ("cost.area_mm2.gpuu: 1.0, must name a unit", "did you mean gpu?")),
    ("cost of the host", {"cost.made": "{ host = 1 }"}, ("cost.made.host: 1.0, must name a unit, memory or link",)),
    ("fewer made than sold", {"cost.made": "{ gpu = 31 }"}, ("cost.made.gpu: 31.0, must be 32, which the chip has, or more",)),
    (
        "unknown package",
        {"cost.package": '"interposr"'},
        ("cost.package: ", "must be one of organic", "did you mean interposer?"),
    ),
    ("zero", {"npu.rows": "0"}, ("npu.rows: 0, must be > 0",)),
    ("zero clock", {"gpu.clock_ghz": "0.0"}, ("gpu.clock_ghz: 0.0, must be > 0",)),
    ("negative", {"hbm.latency_ns": "-1"}, ("hbm.latency_ns: -1, must be >= 0",)),
    ("NaN", {"npu.clock_ghz": "nan"}, ("npu.clock_ghz: NaN, must be finite",)),
    ("infinity", {"npu.clock_ghz": "-inf"}, ("npu.clock_ghz: -Infinity, must be finite",)),
    ("huge number", {"hbm.capacity_gb": "1e300"}, ("hbm.capacity_gb: 1e+300, must be at most 1e+18",)),
    ("huge integer", {"npu.rows": "1" + "0" * 30}, ("npu.rows: 1000", "must be at most 65536")),
    ("integer beyond floats", {"sram.capacity_mb": "1" + "0" * 400}, ("sram.capacity_mb: 1000", "must be finite")),
    ("integer of 5000 digits", {"npu.rows": "1" * 5000}, ("file: is not valid TOML", "digits")),
    ("hexadecimal without end", {"npu.rows": "0x" + "f" * 5000}, ("npu.rows: a int, must be at most 65536",)),
    ("share above 1", {"gpu.buffer_share": "1.5"}, ("gpu.buffer_share: 1.5, must be at most 1",)),
    ("empty name", {"chip.name": '" "'}, ('chip.name: " ", must not be empty',)),
    ("missing key", {"npu.rows": None}, ("npu.rows: missing: rows of one array",)),
    ("missing unit of a key", {"npu.clock_ghz": None}, ("npu.clock_ghz: missing: clock [GHz]",)),
    ("missing table", {"chip": None}, ("chip.name: missing", "chip.source: missing")),
    ("value outside tables", {"chip": 'name = "x"\nsource = "x"\n[gpu2]\n[npu2]'}, ("gpu2: unknown table", "npu2")),
    (
        "unknown dataflow",
        {"npu.dataflow": '"output_stationary"'},
        ('npu.dataflow: "output_stationary", must be one of os, ws, is',),
    ),
    ("unknown protocol", {"pcie.protocol": '"pci"'}, ('pcie.protocol: "pci", must be one of', "did you mean pcie?")),
    ("unknown DRAM standard", {"hbm.standard": '"hbm-3"'}, ('hbm.standard: "hbm-3", must be one of', "did you mean HBM3?")),
    ("unknown number format", {"npu.macs_per_pe_per_cycle": "{int9 = 1}"}, ("int9 is no number format", "did you mean int8?")),
    ("no MACs in a format", {"npu.macs_per_pe_per_cycle": "{int8 = 0}"}, ('{"int8": 0}, int8 must be a finite number > 0',)),
    ("no format at all", {"npu.macs_per_pe_per_cycle": "{}"}, ("npu.macs_per_pe_per_cycle: {}, must not be empty",)),
    (
        "no energy of a format",
        {"npu.macs_per_pe_per_cycle": "{int8 = 1, int4 = 2}"},
        ("npu.mac_energy_pj.int4: missing: energy of one int4 MAC [pJ]",),
    ),
    ("unknown capability", {"npu.capabilities": '["matmull"]'}, ("matmull is unknown", "did you mean matmul?")),
    ("weight wider than a macro", {"npu": CIM.replace("cols = 64", "cols = 7")}, ("npu.cols: 7, must be at least 8: one",)),
    ("macros without a format", {"npu": CIM.replace('["int8"]', "[]")}, ("npu.formats: [], must not be empty",)),
    ("macros of an unknown format", {"npu": CIM.replace('["int8"]', '["int9"]')}, ("int9 is unknown", "did you mean int8?")),
    ("attention in memory", {"npu": CIM + 'capabilities = ["attention"]'}, ("npu.capabilities", "attention is unknown")),
    ("macros with too much to reload", {"npu": CIM + "reload_share = 1.5"}, ("npu.reload_share: 1.5, must be at most 1",)),
    ("macros in no buffer", {"npu": CIM.replace('"sram"', '"hbm"')}, ('npu.buffer: "hbm", must name an sram block',)),
    (
        "no energy of a synaptic operation",
        {"npu": EVENTS.replace("synapse_energy_pj = { int8", "synapse_energy_pj = { int4")},
        ("npu.synapse_energy_pj.int8: missing: energy of one int8 MAC [pJ]",),
    ),
    ("macros of unknown area", {"npu": CIM}, ("cost.area_mm2.npu: missing: area of a unit that holds weights",)),
    ("sparser than nothing", {"npu": EVENTS.replace("0.5", "1.5", 1)}, ("npu.sparsity_fraction: 1.5, must be at most 1",)),
    ("events without a rate", {"npu": EVENTS.replace("event_per_cycle = 1\n", "")}, ("npu.event_per_cycle: missing: events",)),
    ("format of the chip", {"precision.weights": '"fp12"'}, ('precision.weights: "fp12", must be one of', "did you mean")),
    ("link joins itself", {"noc.joins": '["gpu", "noc"]'}, ('noc.joins: "noc", must not join a link', "cycle")),
    ("link joins a link", {"pcie.joins": '["host", "noc"]'}, ('pcie.joins: "noc", must not join a link', "cycle")),
    ("link with one end", {"pcie.joins": '["host"]'}, ('pcie.joins: ["host"], must join at least two blocks',)),
    ("link with one end twice", {"pcie.joins": '["host", "host"]'}, ('pcie.joins: ["host", "host"], must be distinct names',)),
    ("link without ends", {"pcie.joins": "[]"}, ("pcie.joins: [], must join at least two blocks",)),
    (
        "link to nowhere",
        {"pcie.joins": '["host", "controll"]'},
        ('pcie.joins: "controll", no such block, did you mean control?',),
    ),
    ("twin links", {"bus": LINK.format('"ddr", "hbm"')}, ("bus.joins: joins the same blocks as ddr_bus",)),
    (
        "two paths",
        {"bus": LINK.format('"gpu", "npu"')},
        ("gpu: links form a cycle: two equally short paths lead to npu, noc and bus",),
    ),
    (
        "no path to a unit",
        {"noc.joins": '["gpu", "control", "sram"]', "bus": LINK.format('"npu", "hbm2"'), "npu.memory": '"hbm"'},
        ('bus.joins: "hbm2", no such block, did you mean hbm?',),
    ),
    ("no path between units", {"noc.joins": '["gpu", "control", "sram"]'}, ("npu: no link leads from it to sram: no path",)),
    ("no path to the memory", {"interposer": None}, ("gpu: no link leads from it to hbm", "npu: no link leads from it to hbm")),
    ("no path to the host", {"pcie": None}, ("gpu: no link leads from it to host: no path between them",)),
    ("buffer is a DRAM", {"npu.buffer": '"hbm"'}, ('npu.buffer: "hbm", must name an sram block',)),
    ("buffer is unknown", {"npu.buffer": '"srma"'}, ('npu.buffer: "srma", must name an sram block, did you mean sram?',)),
    ("memory is a unit", {"npu.memory": '"gpu"'}, ('npu.memory: "gpu", must name a memory block',)),
    ("buffer given twice", {"npu.buffer_share": "0.8"}, ("sram: 1.3, buffer_share of all units", "at most 1")),
    (
        "placement on no unit",
        {"placement.attention": '"gpuu"'},
        ('placement.attention: "gpuu", must name a unit, did you mean gpu?',),
    ),
    ("placement on a tier", {"placement.head": '"hbm"'}, ('placement.head: "hbm", must name a unit',)),
    ("placement in no tier", {"placement.weights": '"npu"'}, ('placement.weights: "npu", must name a memory block',)),
    (
        "no tier to spill to",
        {"placement.spill": '"dddr"'},
        ('placement.spill: "dddr", must name a memory block, did you mean ddr?',),
    ),
    (
        "two control cores",
        {
            "boss": 'kind = "control"\nclock_ghz = 1\ndispatch_cycles = 1\ncompletion_cycles = 1\n'
            'synchronisation_cycles = 1\nsource = "test"'
        },
        ("boss: is a second control core beside control",),
    ),
    (
        "no unit",
        {"gpu": None, "npu": None, "noc.joins": '["control", "sram"]', "placement": ""},
        ("chip: has no unit: add a [gpu]",),
    ),
    (
        "no block at all",
        dict.fromkeys(
            ("gpu", "npu", "control", "sram", "hbm", "ddr", "noc", "interposer", "ddr_bus", "pcie", "host", "placement")
        ),
        ("chip: has no unit",),
    ),
    (
        "all at once",
        {
            "npu.colz": "3",
            "npu.rows": "0",
            "sram.clock_ghz": '"fast"',
            "hbm.standard": '"HBM9"',
            "pcie.joins": '["host", "x"]',
            "gpu.buffer": '"l2"',
            "placement.head": '"x"',
        },
        (
            "7 problems",
            "npu.colz",
            "npu.rows",
            "sram.clock_ghz",
            "hbm.standard",
            "pcie.joins",
            "gpu.buffer",
            'placement.head: "x"',
        ),
    ),
    ("base is missing", {"chip.extends": '"hetero_v2.toml"'}, ("chip.extends: ", "hetero_v2.toml, file: does not exist")),
    ("base is no name", {"chip.extends": "5"}, ("chip.extends: 5, must be the path of a chip file",)),
    ("base is itself", {"chip.extends": '"./broken.toml"'}, ('chip.extends: "./broken.toml", must not lead back',)),
]

#: name, changes to the workload, words of the message
WORKLOADS: list[tuple[str, Changes, tuple[str, ...]]] = [
    ("typo in a key", {"model.num_layer": "80"}, ("model.num_layer: unknown key",)),
    (
        "typo instead of a key",
        {"model.layer": "80", "model.layers": None},
        ("model.layer: unknown key, did you mean layers?", "model.layers: missing: Transformer layers"),
    ),
    ("typo in a table", {"requests": "batch = 1"}, ("requests: unknown table, did you mean request?",)),
    ("no model", {"model": None}, ("model.layers: missing", "model.hidden: missing", "model.source: missing")),
    ("no request", {"request": None}, ("request.batch: missing: sequences served together",)),
    ("no layers", {"model.layers": "0"}, ("model.layers: 0, must be > 0",)),
    ("no heads", {"model.heads": "0"}, ("model.heads: 0, must be > 0",)),
    ("no width", {"model.hidden": "0"}, ("model.hidden: 0, must be > 0",)),
    ("no sequence", {"request.batch": "0"}, ("request.batch: 0, must be > 0",)),
    ("no prompt", {"request.input_tokens": "0"}, ("request.input_tokens: 0, must be > 0",)),
    ("negative batch", {"request.batch": "-8"}, ("request.batch: -8, must be > 0",)),
    ("half a batch", {"request.batch": "0.5"}, ("request.batch: 0.5, must be an integer",)),
    ("endless prompt", {"request.input_tokens": "1" + "0" * 30}, ("request.input_tokens: 1000", "must be at most 1e+08")),
    (
        "decoder that generates nothing",
        {"request.output_tokens": "0"},
        ("request.output_tokens: 0, must be >= 1 for a decoder",),
    ),
    ("encoder that generates", {"model.family": '"encoder"'}, ("request.output_tokens: 256, must be 0 for an encoder",)),
    ("unknown family", {"model.family": '"dekoder"'}, ('model.family: "dekoder", must be one of decoder, encoder',)),
    ("KV heads", {"model.kv_heads": "7"}, ("model.kv_heads: 7, must divide heads = 80",)),
    ("more KV heads than heads", {"model.kv_heads": "160"}, ("model.kv_heads: 160, must divide heads = 80",)),
    ("odd width", {"model.head_dim": None, "model.hidden": "10241"}, ("model.head_dim: 0, must be given, as hidden = 10241",)),
    ("no feed-forward", {"model.intermediate": "0"}, ("model.intermediate: 0, must be > 0 where a layer is dense",)),
    ("no vocabulary", {"model.vocabulary": "0"}, ("model.vocabulary: 0, must be > 0 for a decoder",)),
    (
        "too few experts",
        {"model.experts": "4", "model.experts_per_token": "8", "model.expert_intermediate": "64", "model.intermediate": "0"},
        ("model.experts_per_token: 8, must be 1 to experts = 4",),
    ),
    (
        "experts without width",
        {"model.experts": "4", "model.experts_per_token": "2", "model.intermediate": "0"},
        ("model.expert_intermediate: 0, must be > 0 where there are experts",),
    ),
    (
        "width of no layer",
        {"model.experts": "4", "model.experts_per_token": "2", "model.expert_intermediate": "64"},
        ("model.intermediate: 32768, must be 0 where every layer has experts",),
    ),
    ("experts by halves", {"model.experts_per_token": "2"}, ("model.experts: 0, must be > 0 where other keys describe",)),
    ("unknown format", {"precision.kv_cache": '"fp88"'}, ('precision.kv_cache: "fp88", must be one of', "did you mean fp8?")),
    ("negative limit", {"limits": "latency_ms = -1"}, ("limits.latency_ms: -1, must be >= 0",)),
    (
        "unknown policy",
        {"placement": 'window_policy = "fill"'},
        ('placement.window_policy: "fill", must be one of capped, full',),
    ),
    ("no part of a batch", {"placement": "micro_batches = 0"}, ("placement.micro_batches: 0, must be > 0",)),
    (
        "config beside a shape",
        {"model.config": '"x.json"'},
        ("model.layers: must not stand beside model.config", "model.config: "),
    ),
    (
        "config is missing",
        {"model": 'config = "models/llama.json"'},
        ("model.config: ", "llama.json, file: does not exist", "no folder"),
    ),
    ("config is no path", {"model": "config = 5"}, ("model.config: 5, must be the path of a config.json",)),
    ("config is a folder", {"model": 'config = "."'}, ("model.config: ", "cannot be read")),
    ("config has a null character", {"model": 'config = "a\\u0000b"'}, ("model.config: ", "cannot be read: embedded null")),
    ("request and config", {"request.batch": "0", "model": 'config = "x.json"'}, ("2 problems", "request.batch: 0", "x.json")),
    (
        "all at once",
        {"model.kv_heads": "3", "request.batch": "0", "precision.head": '"x"', "workload.name": "5", "typo": ""},
        ("5 problems", "model.kv_heads", "request.batch", "precision.head", "workload.name", "typo"),
    ),
]

#: name, bytes of a file that is neither, words of the message
TEXTS: list[tuple[str, bytes, tuple[str, ...]]] = [
    ("not TOML", b"this is prose.\n", ("file: is not valid TOML", "line 1", "this is prose.")),
    ("JSON", b'{"chip": {}}', ("file: is not valid TOML", "line 1")),
    ("key twice", b"[chip]\nname = 'x'\nname = 'y'\n", ("file: is not valid TOML", "line 3", "name = 'y'")),
    ("table twice", b"[gpu]\n[npu]\n[gpu]\n", ("file: is not valid TOML", "twice", "line 3", "[gpu]")),
    ("trailing comma", b"[gpu]\nx = {a = 1,}\n", ("file: is not valid TOML", "line 2", "x = {a = 1,}")),
    ("string without end", b'[gpu]\nx = "abc\n', ("file: is not valid TOML", "line 2")),
    ("file cut short", CHIP.read_bytes()[:1500], ("file: is not valid TOML", "end of document")),
    ("not UTF-8", b"[chip]\nname = '\xff'\n", ("file: is not UTF-8 text (byte 15)",)),
    ("UTF-16", "[chip]".encode("utf-16"), ("file: is not UTF-8 text (byte 0)",)),
    ("binary", bytes(range(256)) * 4, ("file: is not",)),
    ("zeros", bytes(4096), ("file: is not valid TOML",)),
    ("too large", b"#" * (16 * 2**20 + 1), ("file: is larger than 16 MiB",)),
    ("deep lists", b"x = " + b"[" * 5000 + b"]" * 5000, ("file: is nested too deeply",)),
    ("deep tables", b"[" + b".".join([b"a"] * 500) + b"]\n", ("file: is nested too deeply",)),
]

#: name, changes to a config.json (... takes the key out), words of the message
CONFIGS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("no layers", {"num_hidden_layers": 0}, ("num_hidden_layers: 0, must be >= 1",)),
    ("layers missing", {"num_hidden_layers": ...}, ("num_hidden_layers: missing",)),
    ("heads are text", {"num_attention_heads": "32"}, ('num_attention_heads: "32", must be an integer',)),
    ("KV heads", {"num_key_value_heads": 7}, ("num_key_value_heads: 7, must divide",)),
    ("type", {"model_type": "lama"}, ('model_type: "lama", not supported, did you mean llama?',)),
    ("no type", {"model_type": ...}, ("model_type: missing",)),
    ("without end", {"num_hidden_layers": 10**9}, ("num_hidden_layers: 1000000000, must be <=",)),
    (
        "all at once",
        {"hidden_size": -1, "vocab_size": None, "intermediate_size": True},
        ("3 problems", "hidden_size: -1", "vocab_size"),
    ),
]

CIM = """kind = "cim"
macros = 64
rows = 64
cols = 64
cell_bit = 1
input_bit = 1
clock_ghz = 1
formats = ["int8"]
converters = 8
conversion_ghz = 1
write_bit_per_cycle = 64
vector_op_per_cycle = 64
buffer = "sram"
buffer_share = 0.5
memory = "hbm"
source = "test"
"""
EVENTS = """kind = "neuromorphic"
cores = 64
clock_ghz = 1
synapse_op_per_core_per_cycle = { int8 = 1 }
synapse_energy_pj = { int8 = 1 }
sparsity_fraction = 0.5
core_weight_kib = 64
vector_op_per_cycle = 64
event_per_cycle = 1
buffer = "sram"
buffer_share = 0.5
memory = "hbm"
source = "test"
"""

#: name, changes to the chip and to the workload, which are fine each but not together, words of the message
UNFIT: list[tuple[str, tuple[Changes, Changes], tuple[str, ...]]] = [
    (
        "capacity",
        ({"hbm.capacity_gb": "64"}, {}),
        (
            "hetero_v1: the model does not fit",
            "hbm needs weights 100.00 + KV cache 3.36 + activations ",
            "GB and has 64.00 GB",
            "GB short",
        ),
    ),
    ("KV cache", ({}, {"request.input_tokens": "1000000"}), ("hbm needs weights", "KV cache 2622.", "and has 256.00 GB")),
    ("format", ({}, {"precision.feed_forward": '"fp64"'}), ("wants fp64, which npu has not", "int8")),
    ("capability", ({"placement.attention": '"npu"'}, {}), ("placement.attention = npu, which cannot run attention",)),
    ("no norm", ({"gpu.capabilities": '["matmul", "attention"]'}, {}), ("placement.vector = gpu, which cannot run norm",)),
]
