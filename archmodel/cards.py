"""Members of several alike cards: what one of the cards computes, holds and carries of what is placed on its units.

Cards divide the sequences of the batch (data), the inside of every layer (tensor; see `parallel`), or the experts, with the
rest by sequences (expert). Figures are those of the card that has most; `active` is the share of all cards that then works.
Expert parallelism as in GShard (Lepikhin et al., arXiv:2006.16668): tokens go to the cards of their experts and back.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import attrs

from archmodel import sizes
from archmodel.errors import MappingError
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels
from archmodel.operations import Kind
from archmodel.parallel import Degrees, divided, divided_layer
from archmodel.soc import Soc
from archmodel.spec.chip import MemberSpec
from archmodel.spec.model import AttentionSpec, LatentAttentionSpec, LayerSpec
from archmodel.spec.system import member_of
from archmodel.spec.workload import PlacementSpec, PrecisionSpec
from archmodel.template import Setting

Record = dict[str, Any]

_SIZES = ("flop", "exp", "read_byte", "write_byte", "kv_byte")  # columns of vector work and scans that follow the tokens
_PLAIN = ExpertFormats(activation_byte=1.0, operand_byte=1.0, written_byte=1.0, weight_byte=0.0, compute_format=0)
_DIVIDED = ("mixers", "feed_forward", "experts", "head", "embedding")  # parts of a model that tensor parallelism divides


def divided_setting(soc: Soc, setting: Setting) -> Setting:
    """The setting with the part of the model that one card has of each member that divides layers.

    Raises MappingError where such a member runs a part of the attention only, or its heads do not divide.
    """
    placement = setting.placement
    if placement.tensor_parallel > 1:
        return attrs.evolve(setting, degrees=Degrees(*[placement.tensor_parallel] * 4))
    if not any(member.parallel == "tensor" and member.count > 1 for member in soc.chip.members.values()):
        return setting
    mixer = _tensor_cards(soc, placement, "projection")
    if mixer != _tensor_cards(soc, placement, "attention"):
        raise MappingError(f"{soc.chip.name}: cards that divide layers run attention and its projections together, or neither")
    degrees = Degrees(mixer, *(_tensor_cards(soc, placement, role) for role in ("feed_forward", "experts", "head")))
    return attrs.evolve(setting, model=divided(setting.model, degrees), degrees=degrees)


def _tensor_cards(soc: Soc, placement: PlacementSpec, role: str) -> int:
    owner = soc.owner(role, "attention" if role == "attention" else "matmul", placement)
    member = soc.member(owner)
    if member is None or member.count == 1 or member.parallel != "tensor":
        return 1
    if placement.shares.get(role):
        raise MappingError(
            f"{soc.chip.name}: cards of {member_of(owner)} divide layers: placement.shares.{role} cannot as well"
        )
    return member.count


def portion(soc: Soc, block: str, sequences: int) -> float:
    """Share of a stream of `sequences` sequences that one card of a block's member holds: all where cards divide layers."""
    member = soc.member(block)
    return 1.0 if member is None or member.parallel == "tensor" else _most(sequences, member.count)


def carried(soc: Soc, link: str, sequences: int) -> float:
    """Share of a transfer that one copy of a link carries: cards that divide layers each send and take a part."""
    member = soc.member(link)
    if member is None:
        return 1.0
    return 1.0 / member.count if member.parallel == "tensor" else _most(sequences, member.count)


def _most(number: int, cards: int) -> float:
    """Largest share of `number` whole things that one of `cards` has."""
    return -(-number // cards) / number


def one_card(soc: Soc, unit: str, record: Record, sequences: int) -> Record:
    """The part of a record that a unit of one card runs, with the share of cards that work meanwhile as `active`."""
    member = soc.member(unit)
    if member is None or member.count == 1 or member.parallel == "tensor":
        return record
    share = _most(sequences, member.count)
    work: ExpertWork | None = record.get("expert_work")
    if work is not None:
        return _expert_card(record, work, share, member)
    active = 1.0 / (share * member.count)
    if record["kind"] == Kind.MATMUL:
        return {**record, "m": record["m"] * share, "active": active}
    if record["kind"] == Kind.ATTENTION:
        return {**record, "sequences": record["sequences"] * share, "active": active}
    return {**record, **{key: record[key] * share for key in _SIZES if key in record}, "active": active}


def _expert_card(record: Record, work: ExpertWork, share: float, member: MemberSpec) -> Record:
    """A kernel of the experts on one card: its tokens on all experts, or all tokens on its experts."""
    if member.parallel == "expert" and work.experts % member.count:
        raise MappingError(f"expert parallelism: {member.count} cards do not divide {work.experts:g} experts")
    spread = member.parallel == "expert" and record["name"].startswith("experts")
    mine = attrs.evolve(work, ranks=member.count) if spread else attrs.evolve(work, tokens=work.tokens * share)
    old, new = (dict(expert_kernels(each, _PLAIN))[record["name"]] for each in (work, mine))
    routed = {key: new[key] for key in (*work.routing_columns, "m", "count") if key in new}
    sizes = {key: record[key] * new[key] / old[key] for key in _SIZES if old.get(key)}
    active = work.loads()[1] / (mine.loads()[1] * member.count)
    return {**record, **routed, **sizes, "active": float(active)}


def exchanged_tokens(soc: Soc, unit: str, record: Record, sequences: int) -> tuple[int, float]:
    """Cards that exchange tokens before and after the experts, and the tokens that one of them sends, one for each card with
    an expert of the token; (1, 0) where every card has all experts or a record is no product of experts."""
    member, work = soc.member(unit), record.get("expert_work")
    if member is None or work is None or member.count == 1 or member.parallel != "expert":
        return 1, 0.0
    cards = member.count
    reached = min(float(work.chosen), cards * (1.0 - (1.0 - 1.0 / cards) ** float(work.chosen)))
    return cards, float(work.tokens) * _most(sequences, cards) * reached


def kept_weights(
    soc: Soc, unit: str, part: str, layer: LayerSpec | None, hidden: int, precision: PrecisionSpec
) -> Fraction:  # fmt: skip
    """Share of the weights of a part of the model (of `layer`, or outside of all) that one card of a unit's member holds."""
    member = soc.member(unit)
    if member is None or member.count == 1 or member.parallel == "data":
        return Fraction(1)
    if member.parallel == "tensor":
        if layer is None or part not in _DIVIDED:
            return Fraction(1, member.count) if part in _DIVIDED else Fraction(1)
        degrees = Degrees(member.count) if part == "mixers" else Degrees(1, member.count, member.count)
        mine, whole = (sizes.layer_bits(each, hidden, precision)[part] for each in (divided_layer(layer, degrees), layer))
        return mine / whole if whole else Fraction(1)
    return Fraction(1, member.count) if part == "experts" else Fraction(1)


def kept_cache(soc: Soc, unit: str, layer: LayerSpec, sequences: int) -> Fraction:
    """Share of the cache of `sequences` sequences that one card of a unit's member holds."""
    member = soc.member(unit)
    if member is None:
        return Fraction(1)
    if member.parallel != "tensor":
        return Fraction(-(-sequences // member.count), sequences)
    mixer = layer.mixer
    if isinstance(mixer, LatentAttentionSpec):
        return Fraction(1)
    heads = mixer.kv_heads if isinstance(mixer, AttentionSpec) else member.count
    return Fraction(max(1, heads // member.count), heads)
