"""Time of each layer of a model in each way of placing it, from each unit: what a dynamic program searches over."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, permutations, product

import attrs
import numpy as np

from archmodel.cards import divided_setting
from archmodel.costs import Floats
from archmodel.doors import place_entry, place_exit
from archmodel.layers import entry_template, exit_template, layer_template
from archmodel.partition import place
from archmodel.piece import Piece
from archmodel.plan import Part, Plan
from archmodel.residency import Residency
from archmodel.schedule import run, tabulate
from archmodel.soc import Soc
from archmodel.spec.workload import PlacementSpec
from archmodel.splitting.strategies import Ground, Strategy, alone, module, shared
from archmodel.steps import Sample
from archmodel.template import Setting


@attrs.frozen(eq=False)
class Stages:
    """Weighted times [s] of a run's steps. `layer_s[kind]` is (enters, ways), `exit_s` alike, `entry_s` (ways,).

    A stage ends where the residual stream is ready for the next: at unit `leaves[way]`, an index into `units`.
    """

    units: tuple[str, ...]
    leaves: tuple[int, ...]
    entry_s: Floats
    layer_s: dict[int, Floats]
    exit_s: Floats


def ways_of(ground: Ground) -> dict[str, PlacementSpec]:
    """Ways of placing one layer: each unit alone, each pair by module, each pair at once on the feed-forward part."""
    ways = {f"all on {unit}": alone(ground, unit) for unit in ground.sides}
    for one, other in permutations(ground.sides, 2):
        if ground.can(one, "attention", "projection") and ground.can(other, "feed_forward"):
            ways[f"attention on {one}, FFN on {other}"] = module(ground, one, other)
            if ground.can(one, "feed_forward"):
                halves = {one: 0.5, other: 0.5}
                ways[f"FFN in halves, rest on {one}"] = shared(ground, one, halves, ("feed_forward",))
    return ways


def stages(ground: Ground, ways: Collection[PlacementSpec], samples: Sequence[Sample]) -> Stages:
    """Times of entry, layers and exit of a decoder, or of an encoder, in each way, summed over the steps of a run."""
    soc, model = ground.soc, ground.model
    units = tuple(soc.units)
    leaves = tuple(units.index(soc.owner("vector", "norm", way)) for way in ways)
    kinds = dict.fromkeys(model.order)
    pieces: list[Piece] = []
    weights: list[float] = []
    for sample in samples:
        for way in ways:
            setting = divided_setting(soc, Setting(model, ground.precision, way, sample.step, sample.step.groups))
            pieces.append(place_entry(soc, setting, entry_template(setting)))
            for unit in units:
                pieces += [
                    place(soc, setting, layer_template(setting.model.kinds[kind], setting, f"layer_{kind}"), unit)
                    for kind in kinds
                ]
                pieces.append(place_exit(soc, setting, exit_template(setting), unit))
        weights.append(sample.weight)
    seconds = _alone_s(soc, pieces).reshape(len(samples), len(ways), -1)
    total = np.tensordot(weights, seconds, axes=1)  # (ways, 1 + units * (kinds + 1))
    by_unit = total[:, 1:].reshape(len(ways), len(units), len(kinds) + 1)
    layer_s = {kind: by_unit[:, :, number].T for number, kind in enumerate(kinds)}
    return Stages(units, leaves, total[:, 0], layer_s, by_unit[:, :, -1].T)


def _alone_s(soc: Soc, pieces: Sequence[Piece]) -> Floats:
    """Makespan [s] of each piece run by itself, shape (pieces,); weights lie in the cells of units that have any."""
    table, index = tabulate(soc, Residency((), {}, "", {}, dict.fromkeys(soc.units, 1.0)), pieces)
    return np.array([run(soc, table, [[(piece, rows, 0)]]).makespan_s for piece, rows in zip(pieces, index, strict=True)])


def best_chain(found: Stages, order: Sequence[int]) -> tuple[float, list[int]]:
    """Least time [s] of a serial pass through layers of kinds `order`, and the way of each (Viterbi, exact).

    Exact where stages do not overlap: without commands dispatched ahead. The entry goes the first layer's way, the exit
    the last one's.
    """
    ways = len(found.leaves)
    leaves = np.array(found.leaves)
    # the way of a layer that came before enters the next from where it leaves
    cost = found.entry_s + found.layer_s[order[0]][leaves, np.arange(ways)]
    choices = []
    for kind in order[1:]:
        onward = cost[:, None] + found.layer_s[kind][leaves, :]  # (way before, way now)
        choice = np.argmin(onward, axis=0)
        choices.append(choice)
        cost = onward[choice, np.arange(ways)]
    cost = cost + found.exit_s[leaves, np.arange(ways)]
    last = int(np.argmin(cost))
    path = [last]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    return float(cost[last]), path[::-1]


def chain(ground: Ground, ways: Mapping[str, PlacementSpec], path: Sequence[int]) -> Strategy:
    """The strategy in which layer i goes the way number `path[i]`; its name counts the layers that go each way."""
    names = [list(ways)[number] for number in path]
    runs = [(name, len(list(alike))) for name, alike in groupby(names)]
    name = "; ".join(f"{count} {'layer' if count == 1 else 'layers'}: {way}" for way, count in runs)
    return Strategy(name, "layer", Plan(name, (Part(ground.batch, tuple(ways[way] for way in names)),)))


def assignments(ground: Ground, ways: Mapping[str, PlacementSpec]) -> Iterator[Strategy]:
    """Every way of giving each layer one of `ways`."""
    for path in product(range(len(ways)), repeat=ground.layers):
        yield chain(ground, ways, path)
