"""A plan: who runs each layer for each part of the batch. A placement is data; a strategy is a function that returns a plan."""

from __future__ import annotations

import attrs

from archmodel.errors import MappingError
from archmodel.spec.model import ModelSpec
from archmodel.spec.workload import PlacementSpec


@attrs.frozen(eq=False)
class Part:
    """Sequences of the batch that take the same way: one placement a layer, encoder layers first.

    The first placement also says where the step enters (embedding), the last where it leaves (head, sampling).
    """

    sequences: int
    placements: tuple[PlacementSpec, ...]


@attrs.frozen(eq=False)
class Plan:
    """Parts of the batch that run side by side. Weights lie with every unit that a part gives them to.

    `decode` holds other parts for decode steps, where a plan has any; the cache stays where the first step wrote it.
    """

    name: str
    parts: tuple[Part, ...]
    decode: tuple[Part, ...] = ()

    def parts_of(self, phase: str) -> tuple[Part, ...]:
        """Parts of a step of `phase`."""
        return self.decode if self.decode and phase == "decode" else self.parts

    def distinct(self) -> list[PlacementSpec]:
        """Every placement object of the plan, once."""
        return list({id(p): p for part in (*self.parts, *self.decode) for p in part.placements}.values())


def layers_of(model: ModelSpec) -> tuple[int, ...]:
    """Kinds of all layers in the order of a plan's placements."""
    return (*model.encoder_order, *model.order)


def uniform_plan(model: ModelSpec, batch: int, placement: PlacementSpec, name: str = "as placed") -> Plan:
    """The plan that places every layer of every sequence alike."""
    return Plan(name, (Part(batch, (placement,) * len(layers_of(model))),))


def check_plan(plan: Plan, model: ModelSpec, batch: int) -> None:
    """Raises MappingError where a plan does not cover the layers of `model` and the `batch` sequences exactly."""
    layers = len(layers_of(model))
    for parts in (plan.parts, plan.decode or plan.parts):
        held = sum(part.sequences for part in parts)
        if any(len(part.placements) != layers for part in parts):
            raise MappingError(f"plan {plan.name}: must place each of the {layers} layers of {model.name}")
        if held != batch or any(part.sequences < 1 for part in parts):
            raise MappingError(f"plan {plan.name}: its parts hold {held} sequences, the batch has {batch}")
