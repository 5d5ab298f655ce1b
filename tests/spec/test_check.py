"""Rules between the blocks of a chip."""

from __future__ import annotations

import random
import time
from itertools import pairwise, permutations

import attrs
import pytest
from broken import CHIP, WORKLOAD

from archmodel.errors import SpecError
from archmodel.evaluate import evaluate
from archmodel.spec.check import chip_problems, merged_placement, routes
from archmodel.spec.toml import load_chip, load_workload

Joins = dict[str, tuple[str, ...]]


def naive_routes(joins: Joins, start: str, end: str) -> list[tuple[str, ...]]:
    """All shortest routes: every order of every choice of other blocks, and every link between neighbours."""
    blocks = sorted({block for ends in joins.values() for block in ends} - {start, end})
    for between in range(len(blocks) + 1):
        found: list[tuple[str, ...]] = []
        for middle in permutations(blocks, between):
            ways: list[tuple[str, ...]] = [()]
            for pair in pairwise((start, *middle, end)):
                ways = [(*way, link) for way in ways for link, ends in joins.items() if set(pair) <= set(ends)]
            found += ways
        if found:
            return found
    return []


def test_routes_against_all_paths() -> None:
    dice = random.Random(7)
    counts = set()
    for _ in range(150):
        blocks = "abcdef"[: dice.randint(2, 6)]
        joins = {f"l{i}": tuple(dice.sample(blocks, dice.randint(2, min(3, len(blocks))))) for i in range(dice.randint(1, 5))}
        start, *others = blocks
        found = routes(joins, start)
        assert found[start] == [()]
        for end in others:
            right = naive_routes(joins, start, end)
            counts.add(len(right))
            assert len(found.get(end, [])) == min(2, len(right))
            assert set(found.get(end, [])) <= set(right)
    assert counts >= {0, 1, 2, 3}


def test_many_paths_take_no_time() -> None:
    """A chain of 60 diamonds has 2**60 shortest routes from end to end."""
    joins = {}
    for i in range(60):
        joins |= {f"{side}{end}{i}": (f"{side}{i}", f"x{i + end}") for side in "ab" for end in (0, 1)}
    begin = time.perf_counter()
    assert len(routes(joins, "x0")["x60"]) == 2
    assert time.perf_counter() - begin < 1.0


def test_a_good_chip_has_no_problems() -> None:
    chip = load_chip(CHIP)
    assert chip_problems(chip.blocks, chip.placement) == []
    assert merged_placement(chip, {}) is chip


def test_what_a_workload_places_lies_over_the_placement_of_the_chip() -> None:
    chip = load_chip(CHIP)
    merged = merged_placement(chip, {"feed_forward": "gpu", "micro_batches": 2})
    assert merged.placement == attrs.evolve(chip.placement, feed_forward="gpu", micro_batches=2)
    assert merged.blocks == chip.blocks
    unfused = merged_placement(chip, {"fusion": False})
    assert merged_placement(unfused, {"fusion": True}).placement.fusion, "a default can be set again"


def test_a_workload_that_places_on_no_block_is_refused() -> None:
    placement = {"feed_forward": "npx", "weights": "gpu", "spill": "ddr5"}
    workload = attrs.evolve(load_workload(WORKLOAD), placement=placement)
    with pytest.raises(SpecError) as caught:
        evaluate(load_chip(CHIP), workload)
    assert str(caught.value) == (
        "hetero_v1: 3 problems\n"
        '  placement.feed_forward: "npx", must name a unit, did you mean npu?\n'
        '  placement.weights: "gpu", must name a memory block\n'
        '  placement.spill: "ddr5", must name a memory block, did you mean ddr?'
    )


def test_a_chip_changed_in_python_is_checked_when_it_is_evaluated() -> None:
    chip = load_chip(CHIP)
    npu = attrs.evolve(chip.blocks["npu"], buffer="hbm")
    with pytest.raises(SpecError, match=r'hetero_v1: 1 problem\n  npu.buffer: "hbm", must name an sram block'):
        evaluate(attrs.evolve(chip, blocks={**chip.blocks, "npu": npu}), load_workload(WORKLOAD))
