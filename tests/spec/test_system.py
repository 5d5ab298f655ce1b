"""System files: several chips as one larger chip, and what is said of a file that cannot be one."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from broken import ROOT, edited

from archmodel.cli import main
from archmodel.errors import SpecError
from archmodel.spec.chip import LinkSpec
from archmodel.spec.system import copies, host_lanes, with_software
from archmodel.spec.toml import build_chip, load_chip, read_table

SYSTEM = ROOT / "chips/systems/gpu_npu_pcie5.toml"
ALONE = ROOT / "chips/systems/hetero_v1.toml"
CHIP = ROOT / "chips/hetero_v1.toml"


def written(tmp_path: Path, changes: dict[str, str | None], file: Path = SYSTEM) -> Path:
    """A changed system in a folder of its own; the chips that it names are those of the repository."""
    path = tmp_path / "system.toml"
    path.write_text(edited(file, changes).replace('"../', f'"{ROOT / "chips"}/'), encoding="utf-8")
    return path


def test_blocks_of_a_member_are_those_of_its_chip_under_its_name():
    system, chip = load_chip(ALONE), load_chip(CHIP)
    assert list(system.blocks) == [f"card.{name}" for name in chip.blocks]
    assert system.blocks["card.hbm"] == chip.blocks["hbm"]
    assert system.blocks["card.gpu"].memory == "card.hbm"
    assert system.blocks["card.noc"].joins == tuple(f"card.{name}" for name in chip.blocks["noc"].joins)
    assert system.placement.attention == "card.gpu"
    assert (system.precision, system.members["card"].power) == (chip.precision, chip.power)


def test_dropped_blocks_are_replaced_or_gone(tmp_path):
    system = load_chip(SYSTEM)
    assert "gpu_card.host" not in system.blocks
    assert system.blocks["gpu_card.pcie"].joins == ("host", "gpu_card.gpu"), "the system has a host of its own"
    bare = load_chip(written(tmp_path, {"gpu_card.drop": '["host", "peers", "pcie"]', "link": JOIN}))
    assert "gpu_card.nvlink" not in bare.blocks, "it led to the peers only"


JOIN = """kind = "link"
joins = ["host", "gpu_card.gpu"]
protocol = "pcie"
lanes = 16
lane_rate_gt_per_s = 16
latency_ns = 500
source = "test"
"""


def test_tables_inside_a_member_and_settings_lie_over_its_chip(tmp_path):
    system = load_chip(written(tmp_path, {"gpu_card.hbm": "{capacity_gb = 94}"}), {"npu_card.hbm.capacity_gb": 64})
    assert (system.blocks["gpu_card.hbm"].capacity_gb, system.blocks["npu_card.hbm"].capacity_gb) == (94, 64)
    assert system.blocks["gpu_card.hbm"].channels == load_chip(ROOT / "chips/h100_pcie.toml").blocks["hbm"].channels


def test_software_of_the_system_lies_over_that_of_every_member(tmp_path):
    own = written(tmp_path, {"software": "kernel_gap_us = 3", "npu_card.software": "{kernel_gap_us = 5}"})
    system = load_chip(own)
    assert [member.software.kernel_gap_us for member in system.members.values()] == [3.0, 5.0]
    stack = load_chip(CHIP).software
    assert all(member.software == stack for member in with_software(system, stack).members.values())


def test_a_pipeline_stands_for_its_stages(tmp_path):
    ring = JOIN.replace("pcie", "nvlink").replace('"host", "gpu_card.gpu"', '"gpu_card.gpu", "npu_card.npu"')
    gone = '["host", "pcie"]'
    changes = {"gpu_card.pipeline": "3", "gpu_card.drop": gone, "bus": ring, "placement": None}
    system = load_chip(written(tmp_path, changes))
    assert list(system.members) == ["gpu_card_0", "gpu_card_1", "gpu_card_2", "npu_card"]
    assert system.blocks["bus"].joins == ("gpu_card_0.gpu", "gpu_card_1.gpu", "gpu_card_2.gpu", "npu_card.npu")


def test_copies_are_the_cards_of_the_member_and_of_the_smaller_end_of_a_link(tmp_path):
    bus = JOIN.replace('"host", "gpu_card.gpu"', '"gpu_card.gpu", "npu_card.npu"')
    changes = {"gpu_card.count": "12", "gpu_card.drop": '["host", "pcie"]', "npu_card.count": "3", "bus": bus}
    system = load_chip(written(tmp_path, changes))
    number = {name: copies(name, block, system.members) for name, block in system.blocks.items()}
    assert number["gpu_card.hbm"] == 12
    assert (number["npu_card.pcie"], number["bus"], number["host"]) == (3, 3, 1)


def test_lanes_of_all_cards_must_not_exceed_those_of_the_host(tmp_path):
    changes = {"gpu_card.count": "3"}
    system = load_chip(written(tmp_path, changes))
    assert host_lanes("host", system.blocks, system.members) == {"gpu_card.pcie": (16, 3), "npu_card.pcie": (16, 1)}
    one_more = written(tmp_path, {"gpu_card.count": "4"})
    with pytest.raises(
        SpecError, match=r"host\.pcie_lanes: 64, must be at least gpu_card.pcie 16 x 4 \+ npu_card.pcie 16 x 1 = 80"
    ):
        load_chip(one_more)
    assert load_chip(one_more, {"host.pcie_lanes": 0}), "nobody says how many there are"


CASES: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = [
    ("no member", {"gpu_card": None, "npu_card": None}, ("system: has no member: add a table with kind",)),
    ("no head", {"system": "colour = 1"}, ("system.colour: unknown key", "system.name: missing", "system.source: missing")),
    ("a head too many", {"chip": 'name = "x"'}, ("chip: must not stand in a system",)),
    ("chip that is not there", {"gpu_card.chip": '"../h100_pci.toml"'}, ("gpu_card.chip: ", "did you mean h100_pcie.toml?")),
    ("chip without a path", {"gpu_card.chip": None}, ("gpu_card.chip: missing",)),
    ("workload as a member", {"gpu_card.chip": '"../../workloads/llm_100b.toml"'}, ("gpu_card.chip: ", "is a workload")),
    ("system in a system", {"gpu_card.chip": '"../systems/hetero_v1.toml"'}, ("gpu_card.chip: ", "is a system, where a chip")),
    ("number of cards", {"gpu_card.count": "0"}, ("gpu_card.count: 0, must be > 0",)),
    ("way to divide", {"gpu_card.parallel": '"sequence"'}, ('gpu_card.parallel: "sequence", must be one of data',)),
    ("block to drop", {"gpu_card.drop": '["hots"]'}, ('gpu_card.drop: "hots", no such block', "did you mean host?")),
    ("memory dropped", {"npu_card.drop": '["host", "hbm"]'}, ('npu_card.npu.memory: "npu_card.hbm", must name a memory',)),
    ("two hosts", {"gpu_card.drop": None}, ("host: is a second host beside gpu_card.host; a",)),
    ("typo inside a member", {"gpu_card.hbm": "{capacity_gbb = 1}"}, ("h100_pcie.toml, hbm.capacity_gbb: unknown key",)),
    ("value inside a member", {"npu_card.npu": "{rows = 0}"}, ("npu_card.chip: ", "gaudi3.toml, npu.rows: 0, must be > 0")),
    ("kind of a table", {"host.kind": '"hosts"'}, ('host.kind: "hosts", must be one of gpu', "link, chip")),
    ("end of a link", {"link": JOIN.replace("gpu_card.gpu", "gpu_card.gpus")}, ("link.joins:", "did you mean gpu_card.gpu?")),
    ("owner", {"placement.attention": '"gpu"'}, ('placement.attention: "gpu", must name a unit',)),
    ("alike systems", {"placement.tensor_parallel": "2"}, ("placement.tensor_parallel: 2, must be 1 in a system",)),
    ("card without a path", {"gpu_card.drop": '["host", "pcie"]'}, ("npu_card.npu: no link leads from it to gpu_card.gpu",)),
    ("name of a member", {'"a/b"': 'kind = "chip"\nchip = "x"\nsource = "x"'}, ('"a/b": must be a name of letters',)),
    (
        "many at once",
        {"gpu_card.hbm": "{channels = 0}", "npu_card.count": "1.5", "host.step_us": "-1", "placement.speed": "1"},
        ("4 problems", "hbm.channels: 0", "npu_card.count: 1.5", "host.step_us: -1", "placement.speed: unknown"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_broken_system(change, words, tmp_path, monkeypatch, capsys):
    path = written(tmp_path, change)
    (folder := tmp_path / "empty").mkdir()
    monkeypatch.chdir(folder)
    assert main(["eval", str(path), str(ROOT / "workloads/llama3_8b.toml")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert list(folder.iterdir()) == []
    assert f"{path}: " in printed.err
    assert [word for word in words if word not in printed.err] == [], printed.err


VALUES = (0, -1, 10**400, math.nan, True, "x", [], {"x": 1}, None)


def refusal(load):
    """The message of a SpecError, or nothing; every other error is a failure of the test."""
    try:
        load()
    except SpecError as error:
        return str(error)
    return ""


def test_every_key_with_every_bad_value(tmp_path):
    """Read, or refused by the name of the table: never another error."""
    link = JOIN.replace("gpu_card.gpu", "npu_card.npu")
    changes = {"software": "kernel_gap_us = 1", "gpu_card.hbm": "{capacity_gb = 94}", "link": link}
    path = written(tmp_path, {**changes, "npu_card.drop": '["host", "pcie"]'})
    table = read_table(path)
    assert build_chip(table, str(path))
    refusals = 0
    for name, body in table.items():
        for change in [*({**body, key: value} for key in (*body, "colour") for value in VALUES), *VALUES]:
            message = refusal(lambda: build_chip({**table, name: change}, str(path)))  # noqa: B023
            refusals += bool(message)
            assert not message or name in message, (name, change)
    assert refusals > 300


def test_random_damage_is_read_or_refused(tmp_path):
    dice, path = random.Random(5), tmp_path / "damaged.toml"
    good = written(tmp_path, {}).read_text().splitlines()
    refusals = 0
    for _ in range(80):
        lines = list(good)
        for _ in range(dice.randint(1, 3)):
            line, other = dice.randrange(len(lines)), dice.randrange(len(lines))
            lines[line : line + dice.randrange(2)] = [dice.choice(["", "[x]", lines[other], lines[line][: dice.randrange(9)]])]
        path.write_text("\n".join(lines))
        message = refusal(lambda: load_chip(path))
        refusals += bool(message)
        assert not message or str(path) in message
    assert 15 < refusals < 80


def test_a_member_is_no_stage_of_another(tmp_path):
    text = written(tmp_path, {"gpu_card.pipeline": "2"}).read_text().replace("[npu_card]", "[gpu_card_1]")
    (tmp_path / "twice.toml").write_text(text)
    with pytest.raises(SpecError, match="gpu_card_1: is a stage of a pipeline as well"):
        load_chip(tmp_path / "twice.toml")


def test_a_system_is_no_workload():
    from archmodel.spec.toml import load_workload

    with pytest.raises(SpecError, match="is a system, where a workload is wanted"):
        load_workload(SYSTEM)


def test_show_prints_members_links_and_lanes(capsys):
    assert main(["show", str(SYSTEM)]) == 0
    printed = capsys.readouterr().out
    for words in ("Members", "../gaudi3.toml", "PCIe lanes of host", "32 of 64", "[gpu_card.hbm] dram"):
        assert words in printed
    assert main(["show", str(SYSTEM), "--json"]) == 0
    assert '"gpu_card.pcie": [' in capsys.readouterr().out
    assert isinstance(load_chip(SYSTEM).blocks["npu_card.pcie"], LinkSpec)
