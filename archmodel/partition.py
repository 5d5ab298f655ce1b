"""Operations -> owners; inserts what the owners make necessary: (de)quantisation, transfers, layout conversions, syncs.

A placement is data. The result is one `Piece` per template: records with an owner and dependencies inside the piece.
"""

from __future__ import annotations

from typing import Any

import attrs

from archmodel.cards import carried, exchanged_tokens, one_card, portion
from archmodel.components import link as links
from archmodel.components.collective import OPS, collectives
from archmodel.errors import MappingError
from archmodel.kernels.timeline import (
    CLASS_COMPUTE,
    CLASS_CONVERSION,
    CLASS_HOST,
    CLASS_SYNCHRONISATION,
    CLASS_TRANSFER,
)
from archmodel.operations import Kind
from archmodel.piece import Piece
from archmodel.sharing import SharedRun, part_of, shared_run
from archmodel.soc import Soc
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.system import member_of
from archmodel.spec.workload import ROLES
from archmodel.template import DEFERRED, STREAM, Setting, Template
from archmodel.units import FORMATS, element_bytes

_QUANTISE_FLOP = 3.0  # scale, round and the running maximum, per element
_DEQUANTISE_FLOP = 1.0  # scale an accumulator
_ACCUMULATOR_BYTE = 4.0


class Placer:
    """Places one template; keeps what already crossed to a unit, so that nothing is sent twice."""

    def __init__(self, soc: Soc, setting: Setting, template: Template, enters: str = "") -> None:
        self.soc, self.setting, self.template, self.placement = soc, setting, template, setting.placement
        self.records: list[dict[str, Any]] = []
        self.at: dict[int, int] = {}  # template index -> index of the record that yields its result
        self.made = dict(enumerate(template.records))  # template index -> its record, or one unit's share of it
        self.crossed: dict[tuple[int, str, float], int] = {}
        self.widened: list[tuple[str, str, str, str]] = []
        self.stream = STREAM  # record that yields what enters the template, where the piece itself makes it
        self.stream_owner = soc.owner("vector", "norm", self.placement)
        self.enters = enters or self.stream_owner  # unit on which it lies before

    def add(
        self, name: str, owner: str, event_class: int, after: tuple[int, ...], lies: str = "", **columns: Any
    ) -> int:  # fmt: skip
        """Append a record; `lies` is the block where its result is, its owner unless said."""
        self.records.append(
            {"name": name, "owner": owner, "event_class": event_class, "after": after, "lies": lies or owner, **columns}
        )
        return len(self.records) - 1

    def lies(self, node: int) -> str:
        return self.enters if node < 0 else str(self.records[node]["lies"])

    def place(self) -> Piece:
        if self.stream == STREAM:
            self.stream = self.cross(STREAM, self.stream_owner, self._result_byte(STREAM))
        index = 0
        while index < len(self.template.records):
            run = shared_run(self.template.records, index, self.placement, self.setting.sequences)
            if run is None:
                self.at[index] = self._place(index)
                index += 1
            else:
                self.at[run.end - 1] = self._shared(run)
                index = run.end
        last = self._to_stream(self.at[len(self.template.records) - 1])
        late = self.template.deferred
        deferred = -1 if late < 0 else self.cross(self.at[late], self.stream_owner, self._result_byte(late))
        held = self._result_byte(STREAM) * portion(self.soc, self.lies(last), self.setting.sequences)
        return Piece(self.template.name, tuple(self.records), last, self.lies(last), deferred, self._late(last, deferred),
                     held, self.enters, tuple(self.widened))  # fmt: skip

    def _late(self, last: int, deferred: int) -> tuple[int, ...]:
        """Of what leads to `deferred` alone: records of the stream's own unit that wait for another unit."""
        if deferred < 0:
            return ()
        waits, needed = set[int](), {last}
        for index, record in enumerate(self.records):
            if any(i in waits or (i >= 0 and self.records[i]["owner"] != self.stream_owner) for i in record["after"]):
                waits.add(index)
        for index in reversed(range(last + 1)):
            if index in needed:
                needed |= set(self.records[index]["after"])
        mine = (i for i in sorted(waits - needed) if self.records[i]["owner"] == self.stream_owner)
        return tuple(mine)

    def _lightened(self, record: dict[str, Any], owner: str) -> str:
        """The low-power unit where the placement gives it this short operation and it can run it from the same memory."""
        placement, unit = self.placement, self.placement.light_unit
        if not unit or ROLES[record["role"]] not in placement.light or record["kind"] == Kind.ATTENTION:
            return owner
        product = 2.0 * record.get("m", 0.0) * record.get("n", 0.0) * record.get("k", 0.0) * record.get("count", 1.0)
        short = product + record.get("flop", 0.0) + record.get("exp", 0.0) < placement.light_flop
        able = CAPABILITIES[record["capability"]] in self.soc.units[unit].capabilities
        return unit if short and able and self.soc.home(unit, "weights") == self.soc.home(owner, "weights") else owner

    def _place(self, index: int, taken: float = 1.0) -> int:
        """Record that yields the result of the template's operation `index`, which takes the share `taken` of its inputs."""
        record = self.made[index]
        if record["kind"] == Kind.COLLECTIVE:
            return self._collective(record)
        owner = self.soc.owner(ROLES[record["role"]], CAPABILITIES[record["capability"]], self.placement)
        if self.soc.host and owner == self.soc.host[0]:
            return self._host_embedding(record)
        owner = self._lightened(record, owner)
        if record["kind"] == Kind.MATMUL:
            return self._matmul(record, owner, taken)
        return self._unit(record, owner, tuple(self._bring(i, owner, taken=taken) for i in record["after"]))

    def _shared(self, run: SharedRun) -> int:
        """Each unit's share of a run, and the record that joins their results on the unit of the residual stream."""
        whole, placed, inner = dict(self.made), self.placement, range(run.start, run.end)
        roles = {ROLES[whole[index]["role"]] for index in inner}
        results = []
        for unit, fraction in run.fractions.items():
            alone: dict[str, Any] = dict.fromkeys(roles, unit)
            self.placement = attrs.evolve(placed, shares={}, **alone)
            self.made.update(zip(inner, part_of(run, self.template.records, fraction), strict=True))
            for index in inner:
                outside = index == run.start and not run.whole_input
                self.at[index] = self._place(index, fraction if outside else 1.0)
            result = self.cross(self.at[run.end - 1], self.stream_owner, self._result_byte(run.end - 1))
            results.append(result)
            self.crossed = {key: node for key, node in self.crossed.items() if key[0] not in inner}
        self.made, self.placement = whole, placed
        if len(results) == 1:
            return results[0]
        return self._join(tuple(results), self._result_byte(run.end - 1) / self.setting.activation_byte, run.summed)

    def _join(self, results: tuple[int, ...], elements: float, summed: bool) -> int:
        """Results of several units as one: added up, or, where each is a part of the whole, only waited for."""
        if summed:
            a = self.setting.activation_byte
            return self._vector("partial_sum", "residual", self.stream_owner, results, elements, len(results) - 1.0,
                                a * len(results), a)  # fmt: skip
        node = self._vector("gather", "residual", self.stream_owner, results, 0.0, 0.0, 0.0, 0.0)
        self.records[node]["fused"] = 1.0
        return node

    def _unit(self, record: dict[str, Any], owner: str, after: tuple[int, ...]) -> int:
        before = next((i for i in after if i >= 0), STREAM)
        joined = before != STREAM and self.records[before]["owner"] == owner
        able = CAPABILITIES[record["capability"]] in self.soc.software(owner).fused
        fused = self.setting.placement.fusion and able and record["kind"] == Kind.VECTOR and joined
        mine = one_card(self.soc, owner, record, self.setting.sequences)
        values = {key: value for key, value in mine.items() if key not in ("name", "after")}
        return self.add(record["name"], owner, CLASS_COMPUTE, after, **values, fused=float(fused))

    def _matmul(self, record: dict[str, Any], owner: str, taken: float) -> int:
        """A matmul with its operands in the format that the owner computes in, quantised before they travel."""
        wanted = FORMATS[record["compute_format"]]
        compute = self.soc.compute_format(owner, wanted, record["name"])
        if compute != wanted:
            self.widened.append((record["name"], owner, wanted, compute))
        narrow = element_bytes(compute) < self.setting.activation_byte
        after = tuple(self._bring(i, owner, compute if narrow else "", taken) for i in record["after"])
        changed: dict[str, float] = {"compute_format": FORMATS.index(compute)}
        if narrow:
            changed["input_byte"] = element_bytes(compute)
        cards, tokens = exchanged_tokens(self.soc, owner, record, self.setting.sequences)
        if cards > 1 and record["name"] == "experts_up":
            byte = tokens * record["k"] * changed.get("input_byte", record["input_byte"])
            after = (self._exchange("all_to_all", after[0], byte, cards),)
        node = self._unit({**record, **changed}, owner, after)
        if cards > 1 and record["name"] == "experts_down":
            node = self._exchange("all_to_all", node, tokens * record["n"] * record["output_byte"], cards)
        if not narrow:
            return node
        elements = record["m"] * record["n"] * record.get("count", 1.0)
        return self._vector("dequantise", "quantise", owner, (node,), elements, _DEQUANTISE_FLOP, _ACCUMULATOR_BYTE,
                            self.setting.activation_byte)  # fmt: skip

    def _vector(
        self, name: str, capability: str, owner: str, after: tuple[int, ...], elements: float, flop: float, reads: float,
        writes: float,
    ) -> int:  # fmt: skip
        able = capability in self.soc.units[owner].capabilities
        unit = owner if able else self.soc.owner("vector", capability, self.placement)
        record = {
            "name": name, "kind": Kind.VECTOR, "role": ROLES.index("vector"), "capability": CAPABILITIES.index(capability),
            "compute_format": FORMATS.index("fp32"), "flop": elements * flop, "read_byte": elements * reads,
            "write_byte": elements * writes,
        }  # fmt: skip
        return self._unit(record, unit, after)

    def _bring(self, index: int, owner: str, quantised: str = "", taken: float = 1.0) -> int:
        """Record after which the result of template index `index` is on `owner`, in the wanted format and layout.

        `taken` is the part of it that the owner needs.
        """
        a = self.setting.activation_byte
        key = (index, owner, taken * (element_bytes(quantised) if quantised else a))
        if key in self.crossed:
            return self.crossed[key]
        node = self.stream if index == STREAM else index if index == DEFERRED else self.at[index]
        source = self.lies(node)
        byte = self._result_byte(index) * taken
        if quantised:
            ratio = element_bytes(quantised) / a
            able = source if "quantise" in getattr(self.soc.units.get(source), "capabilities", ()) else owner
            if able == source:
                node = self._vector("quantise", "quantise", source, (node,), byte / a, _QUANTISE_FLOP, a, a * ratio)
                node = self.cross(node, owner, byte * ratio)
            else:
                node = self.cross(node, owner, byte)
                node = self._vector("quantise", "quantise", owner, (node,), byte / a, _QUANTISE_FLOP, a, a * ratio)
        else:
            node = self.cross(node, owner, byte)
        self.crossed[key] = node
        return node

    def _to_stream(self, node: int) -> int:
        """The residual stream goes on from the unit that holds it between layers."""
        if self.template.name == "exit":
            return node
        return self.cross(node, self.stream_owner, self._result_byte(STREAM))

    def cross(self, node: int, owner: str, byte: float) -> int:
        """Move a result to `owner`: transfer over the links on the way, synchronisation, layout conversion."""
        source = self.lies(node)
        if source == owner:
            return node
        node = self.transfer(f"{source}_to_{owner}", source, owner, (node,), byte)
        node = self._spread(node, source, owner, byte)
        if name := self.soc.dispatcher(owner) or self.soc.dispatcher(source):
            control = self.soc.controls[name]
            cycles = control.completion_cycles + control.synchronisation_cycles
            node = self.add("synchronise", name, CLASS_SYNCHRONISATION, (node,), lies=owner,
                            duration_s=cycles / (control.clock_ghz * 1e9))  # fmt: skip
        units = self.soc.units
        if source in units and owner in units and units[source].layout != units[owner].layout:
            able = next(u for u in (owner, source, *units) if "convert" in units[u].capabilities)
            a = self.setting.activation_byte
            node = self._vector("convert_layout", "convert", able, (node,), byte / a, 0.0, a, a)
            self.records[node]["event_class"] = CLASS_CONVERSION
        return node

    def _spread(self, node: int, source: str, owner: str, byte: float) -> int:
        """Cards that divide layers gather what each of them took from another member: all of them need all of it."""
        member = self.soc.member(owner)
        if member is None or member.parallel != "tensor" or member_of(source) == member_of(owner):
            return node
        return self._exchange("all_gather", node, byte, member.count)

    def transfer(self, name: str, source: str, target: str, after: tuple[int, ...], byte: float) -> int:
        """A transfer; the slowest link of the route runs it, every link on the way carries its bytes, alike links a part each.
        The card with most of them sets the time; `moved` is the mean."""
        soc, sequences = self.soc, self.setting.sequences
        shares = {link: carried(soc, link, sequences) for link in soc.route(source, target)}
        specs = [soc.links[link] for link in shares]
        slowest = min(shares, key=lambda link: links.payload_byte_per_s(soc.links[link]) / shares[link])
        held = byte * portion(soc, target, sequences)
        return self.add(
            name, slowest, CLASS_TRANSFER, after, lies=target, read_byte=held, write_byte=held,
            duration_s=float(links.path_transfer_s(specs, byte, shares=list(shares.values()))),
            moved={link: byte / soc.copies(link) for link in shares},
        )  # fmt: skip

    def _collective(self, record: dict[str, Any]) -> int:
        """An exchange between the chips that divide what came before it, where that lies."""
        (before,) = record["after"]
        return self._exchange(record["name"], self.at[before], record["read_byte"], record["chips"])

    def _exchange(self, op: str, node: int, byte: float, chips: int) -> int:
        """A collective of `chips` chips of a group from the unit that holds the data; the slowest link of the way runs it."""
        if chips == 1:
            return node
        unit = self.lies(node)
        link, peers = self.soc.peer_link(unit)
        if chips > peers.devices:
            raise MappingError(f"{self.soc.chip.name}: {unit} has {chips} cards, but a group has at most {peers.devices}")
        direct = self.soc.software(unit).direct_all_reduce
        ((seconds, sent_byte, _),) = collectives(self.soc.links[link], peers, OPS.index(op), chips, byte, direct)
        return self.add(
            op, link, CLASS_TRANSFER, (node,), lies=unit, duration_s=float(seconds), moved={link: float(sent_byte)},
            read_byte=byte, write_byte=byte,
        )  # fmt: skip

    def _host_embedding(self, record: dict[str, Any]) -> int:
        """Host work of the lookup (and of tokenising a prompt), then the embeddings over the links to the chip."""
        assert self.soc.host is not None
        name, host = self.soc.host
        step = self.setting.step
        seconds = record["read_byte"] / (host.embedding_gb_per_s * 1e9) + host.step_us * 1e-6
        if step.phase != "decode":
            seconds += self.setting.tokens * host.tokenise_us_per_token * 1e-6
        node = self.add("host_embedding", name, CLASS_HOST, (STREAM,), duration_s=seconds)
        return self.transfer("host_to_chip", name, self.stream_owner, (node,), record["write_byte"])

    def _result_byte(self, index: int) -> float:
        """Bytes that the result of a template operation takes, in the activation format."""
        a = self.setting.activation_byte
        if index < 0:
            return self.setting.tokens * self.setting.model.hidden * a
        record = self.made[index]
        if record["kind"] == Kind.MATMUL:
            return float(record["m"] * record["n"] * record.get("count", 1.0) * a)
        if record["kind"] == Kind.ATTENTION:
            return float(record["sequences"] * record["q_tokens"] * record["heads"] * record["v_dim"] * a)
        return float(record["write_byte"])


def place(soc: Soc, setting: Setting, template: Template, enters: str = "") -> Piece:
    """Place one template on a chip, whose residual stream `enters` from a unit (its own, unless said).

    Raises MappingError where no unit can run an operation.
    """
    return Placer(soc, setting, template, enters).place()
