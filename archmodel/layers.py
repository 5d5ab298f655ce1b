"""A model and a step -> templates of operations; knows no hardware.

A template is the operations of one layer (or of the step's entry or exit) with their order; alike layers share one. The
residual stream enters a template at index `STREAM` and leaves it with its last operation.
"""

from __future__ import annotations

from typing import Any

import attrs

from archmodel import sizes
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels, exponent
from archmodel.matrices import Matrix, cross_attention_matrices, expert_matrices, mixer_matrices, router_matrices, scan_work
from archmodel.operations import Kind
from archmodel.spec.chip import CAPABILITIES
from archmodel.spec.model import (
    AttentionSpec,
    FeedForwardSpec,
    LatentAttentionSpec,
    LayerSpec,
    ModelSpec,
    MoeSpec,
)
from archmodel.spec.workload import ROLES, PlacementSpec, PrecisionSpec
from archmodel.units import FORMATS, element_bytes

STREAM = -1  # dependency on what enters the template

# operations per element of the usual formulations; an exponential counts apart
_FLOP = {"norm": 4, "norm_bias": 7, "rotary": 3, "residual": 1, "gated": 3, "plain": 6}


@attrs.frozen
class Group:
    """Sequences that take the same pass: `new_tokens` each on top of `context_tokens` already cached."""

    sequences: int
    new_tokens: int
    context_tokens: int


@attrs.frozen
class Step:
    """One pass of the model over a batch. `encode_tokens` > 0 runs an encoder-decoder's encoder in the same step."""

    label: str
    phase: str
    groups: tuple[Group, ...]
    encode_tokens: int = 0
    cross_tokens: int = 0
    routing: str = "uniform"

    @property
    def tokens(self) -> int:
        return sum(group.sequences * group.new_tokens for group in self.groups)

    @property
    def sequences(self) -> int:
        return sum(group.sequences for group in self.groups)


@attrs.frozen(eq=False)
class Template:
    """Operations of one layer as records for `rows_from`; `after` holds indices into the template, or STREAM."""

    name: str
    records: tuple[dict[str, Any], ...]


@attrs.frozen
class Setting:
    """What the operations of a step need to know beside the layer."""

    model: ModelSpec
    precision: PrecisionSpec
    placement: PlacementSpec
    step: Step
    groups: tuple[Group, ...]

    @property
    def tokens(self) -> int:
        return sum(group.sequences * group.new_tokens for group in self.groups)

    @property
    def chips(self) -> int:
        """Chips that divide the model, of whose parts `model` is one."""
        return self.placement.tensor_parallel

    @property
    def activation_byte(self) -> float:
        return element_bytes(self.precision.activations)

    @property
    def stored_byte(self) -> float:
        """Bytes of an element of what is not a matrix of a layer: tables, head, router."""
        return element_bytes(self.precision.embedding or self.precision.weights)


class _Builder:
    """Collects the records of one template."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.records: list[dict[str, Any]] = []

    def add(self, name: str, kind: Kind, role: str, capability: str, after: tuple[int, ...], **columns: Any) -> int:
        record = {"name": name, "kind": kind, "role": ROLES.index(role), "capability": CAPABILITIES.index(capability)}
        self.records.append({**record, "after": after, **columns})
        return len(self.records) - 1

    def record(self, name: str, after: tuple[int, ...], columns: dict[str, Any]) -> int:
        """Append a record whose columns say what it is."""
        self.records.append({"name": name, "after": after, **columns})
        return len(self.records) - 1

    def matmul(self, matrix: Matrix, role: str, after: int, m: float, number_format: str, **columns: Any) -> int:
        """C[m,n] = A[m,k] B[k,n] with stored weights B = `matrix`; `number_format` is what it computes in."""
        a = self.setting.activation_byte
        each = Matrix(matrix.name, matrix.n, matrix.k)
        weight = columns.pop("weight_byte", float(sizes.matrix_bytes(each, self.setting.precision)) / each.elements)
        return self.add(
            matrix.name, Kind.MATMUL, role, "matmul", (after,), m=m, n=matrix.n, k=matrix.k,
            compute_format=FORMATS.index(number_format), weight_byte=weight, input_byte=a, output_byte=a, **columns,
        )  # fmt: skip

    def vector(
        self,
        name: str,
        role: str,
        capability: str,
        after: tuple[int, ...],
        elements: float,
        flop: float,
        exp: float = 0.0,
        reads: float = 1.0,
        writes: float = 1.0,
    ) -> int:
        """Element-wise work; `flop`, `exp`, `reads` and `writes` are per element of the output stream."""
        a = self.setting.activation_byte
        return self.add(
            name, Kind.VECTOR, role, capability, after, compute_format=FORMATS.index("fp32"), flop=elements * flop,
            exp=elements * exp, read_byte=elements * reads * a, write_byte=elements * writes * a,
        )  # fmt: skip

    def norm(self, name: str, after: int, bias: bool) -> int:
        return self.vector(name, "vector", "norm", (after,), self.setting.tokens * self.setting.model.hidden,
                           _FLOP["norm_bias" if bias else "norm"])  # fmt: skip

    def residual(self, name: str, after: tuple[int, ...]) -> int:
        return self.vector(name, "vector", "residual", after, self.setting.tokens * self.setting.model.hidden,
                           _FLOP["residual"] * (len(after) - 1), reads=len(after))  # fmt: skip

    def collective(self, op: str, after: int, elements: float) -> int:
        """Exchange of `elements` activations between the chips that divide the model; nothing on one chip."""
        if self.setting.chips == 1:
            return after
        byte = elements * self.setting.activation_byte
        return self.add(op, Kind.COLLECTIVE, "vector", "residual", (after,), read_byte=byte, write_byte=byte)

    def reduced(self, branches: tuple[int, ...]) -> tuple[int, ...]:
        """Branches of which every chip holds a summand, added up over them in one exchange."""
        if self.setting.chips == 1:
            return branches
        one = self.residual("partial_sum", branches) if len(branches) > 1 else branches[0]
        return (self.collective("all_reduce", one, self.setting.tokens * self.setting.model.hidden),)

    def template(self, name: str) -> Template:
        return Template(name, tuple(self.records))


def layer_template(layer: LayerSpec, setting: Setting, name: str, encoder: bool = False) -> Template:
    """Operations of one layer, from the residual stream to the residual stream."""
    b = _Builder(setting)
    normed = b.norm("norm", STREAM, layer.norm_bias) if layer.norms else STREAM
    mixed = _mixer(b, layer, normed, encoder)
    if layer.parallel:
        branches = (*_feed_forward(b, layer, normed), mixed)
        b.residual("residual", (*b.reduced(branches), STREAM))
        return b.template(name)
    stream = b.residual("residual", (*b.reduced((mixed,)), STREAM))
    if layer.cross_attention is not None and not encoder:
        normed = b.norm("cross_norm", stream, layer.norm_bias)
        crossed = _cross_attention(b, layer.cross_attention, normed)
        stream = b.residual("cross_residual", (*b.reduced((crossed,)), stream))
    if layer.feed_forward is not None or layer.moe is not None:
        normed = b.norm("ffn_norm", stream, layer.norm_bias) if layer.norms > 1 else stream
        b.residual("ffn_residual", (*b.reduced(_feed_forward(b, layer, normed)), stream))
    return b.template(name)


def _mixer(b: _Builder, layer: LayerSpec, after: int, encoder: bool) -> int:
    mixer = layer.mixer
    if isinstance(mixer, AttentionSpec):
        return _attention(b, mixer, after, encoder)
    if isinstance(mixer, LatentAttentionSpec):
        return _latent_attention(b, mixer, after)
    return _recurrent(b, layer, after)


def _attention(b: _Builder, mixer: AttentionSpec, after: int, encoder: bool) -> int:
    s, tokens, hidden = b.setting, b.setting.tokens, b.setting.model.hidden
    compute = s.precision.attention
    width, kv_width = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    qkv, out = mixer_matrices(mixer, hidden)
    node = b.matmul(qkv, "projection", after, tokens, compute)
    if mixer.rotary or mixer.qk_norm != "none":
        flop = _FLOP["rotary"] * mixer.rotary + _FLOP["norm"] * (mixer.qk_norm != "none")
        node = b.vector("rotary", "attention", "rotary", (node,), tokens * (width + kv_width), flop)
    for index, group in enumerate(s.groups):
        node = b.add(
            "attention" if index == 0 else f"attention_{index}", Kind.ATTENTION, "attention", "attention", (node,),
            compute_format=FORMATS.index(compute), input_byte=s.activation_byte, output_byte=s.activation_byte,
            sequences=group.sequences, q_tokens=group.new_tokens, kv_tokens=group.context_tokens + group.new_tokens,
            heads=mixer.heads, kv_heads=mixer.kv_heads, qk_dim=mixer.head_dim, v_dim=mixer.head_dim,
            window=mixer.window_tokens, causal=float(mixer.causal and not encoder),
            kv_byte=element_bytes(s.precision.kv_cache), materialised=float(not s.placement.fused_attention),
            cached=float(not encoder),
        )  # fmt: skip
    if mixer.output_gate:
        node = b.vector("output_gate", "attention", "activation", (node,), tokens * width, _FLOP["gated"], exp=1.0, reads=2.0)
    return b.matmul(out._replace(name="attention_out"), "projection", node, tokens, compute)


def _latent_attention(b: _Builder, mixer: LatentAttentionSpec, after: int) -> int:
    """MLA. Generation absorbs the key and value expansions (scores against the latent); context expands them."""
    s, tokens, hidden, compute = b.setting, b.setting.tokens, b.setting.model.hidden, b.setting.precision.attention
    made = {matrix.name: matrix for matrix in mixer_matrices(mixer, hidden)}
    latent, rank = made["kv_down"].n, mixer.q_lora_rank
    first = made["q_down" if rank else "q"]
    both = Matrix("q_and_kv_down" if rank else "q_and_kv", first.n + latent, hidden)
    node = b.matmul(both, "projection", after, tokens, compute)
    node = b.vector("latent_norm", "attention", "norm", (node,), tokens * (rank + latent), _FLOP["norm"])
    if rank:
        node = b.matmul(made["q_up"], "projection", node, tokens, compute)
    node = b.vector("rotary", "attention", "rotary", (node,), tokens * (mixer.heads + 1) * mixer.qk_rope_head_dim,
                    _FLOP["rotary"])  # fmt: skip
    absorbed = all(group.new_tokens <= _ABSORB_TOKENS and group.context_tokens for group in s.groups)
    if absorbed:
        key = Matrix("key_absorb", mixer.kv_lora_rank, mixer.qk_nope_head_dim)
        node = b.matmul(key, "projection", node, tokens, compute, count=mixer.heads)
    else:
        every = sum(group.sequences * (group.new_tokens + group.context_tokens) for group in s.groups)
        node = b.matmul(made["kv_up"], "projection", node, every, compute)
    for group in s.groups:
        wide = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        shape = (1, latent, mixer.kv_lora_rank) if absorbed else (mixer.heads, wide, mixer.v_head_dim)
        node = b.add(
            "attention", Kind.ATTENTION, "attention", "attention", (node,), compute_format=FORMATS.index(compute),
            input_byte=s.activation_byte, output_byte=s.activation_byte, sequences=group.sequences,
            q_tokens=group.new_tokens, kv_tokens=group.context_tokens + group.new_tokens, heads=mixer.heads,
            kv_heads=shape[0], qk_dim=shape[1], v_dim=shape[2], causal=1.0, latent=float(absorbed),
            kv_byte=element_bytes(s.precision.kv_cache), materialised=float(not s.placement.fused_attention),
            cached=float(absorbed),  # expanded keys and values are not what the cache keeps: `latent_norm` writes that
        )  # fmt: skip
    if absorbed:
        value = Matrix("value_absorb", mixer.v_head_dim, mixer.kv_lora_rank)
        node = b.matmul(value, "projection", node, tokens, compute, count=mixer.heads)
    return b.matmul(made["out"]._replace(name="attention_out"), "projection", node, tokens, compute)


_ABSORB_TOKENS = 16  # up to a speculative window; beyond it expanding the latent once is cheaper


def _recurrent(b: _Builder, layer: LayerSpec, after: int) -> int:
    """State space or linear attention: projections around one scan, whose state is read and written per sequence."""
    s, tokens = b.setting, b.setting.tokens
    *before, out = mixer_matrices(layer.mixer, s.model.hidden)
    node = after
    for matrix in before:
        node = b.matmul(matrix, "projection", node, tokens, s.precision.attention)
    sequences = sum(group.sequences for group in s.groups)
    work = scan_work(layer.mixer)
    node = b.add(
        "scan", Kind.SCAN, "attention", "scan", (node,), compute_format=FORMATS.index("fp32"),
        flop=tokens * work.flop_per_token, exp=tokens * work.exp_per_token,
        kv_byte=2 * sequences * work.state_elements * element_bytes(s.precision.state),
        read_byte=tokens * work.input_elements * s.activation_byte,
        write_byte=tokens * work.output_elements * s.activation_byte,
    )  # fmt: skip
    return b.matmul(out._replace(name="mixer_out"), "projection", node, tokens, s.precision.attention)


def _cross_attention(b: _Builder, mixer: AttentionSpec, after: int) -> int:
    """Decoder queries against the encoder's keys and values, which are projected once, in the step that encodes."""
    s, tokens, hidden, compute = b.setting, b.setting.tokens, b.setting.model.hidden, b.setting.precision.attention
    query, key_value, out = cross_attention_matrices(mixer, hidden)
    node = b.matmul(query, "projection", after, tokens, compute)
    sequences = sum(group.sequences for group in s.groups)
    if s.step.encode_tokens:
        node = b.matmul(key_value, "projection", node, sequences * s.step.encode_tokens, compute)
    node = b.add(
        "cross_attention", Kind.ATTENTION, "attention", "attention", (node,), compute_format=FORMATS.index(compute),
        input_byte=s.activation_byte, output_byte=s.activation_byte, sequences=sequences,
        q_tokens=tokens / sequences, kv_tokens=s.step.cross_tokens, heads=mixer.heads, kv_heads=mixer.kv_heads,
        qk_dim=mixer.head_dim, v_dim=mixer.head_dim, causal=0.0, kv_byte=element_bytes(s.precision.kv_cache),
        materialised=float(not s.placement.fused_attention), cached=0.0,
    )  # fmt: skip
    return b.matmul(out, "projection", node, tokens, compute)


def _feed_forward(b: _Builder, layer: LayerSpec, after: int) -> tuple[int, ...]:
    """Last operations of the dense and expert branches, which the residual adds up."""
    branches: list[int] = []
    if layer.feed_forward is not None:
        branches.append(_dense(b, layer.feed_forward, after, "ffn"))
    if layer.moe is not None:
        branches += _experts(b, layer, layer.moe, after)
    return tuple(branches)


def _dense(b: _Builder, ffn: FeedForwardSpec, after: int, name: str) -> int:
    tokens, hidden, compute = b.setting.tokens, b.setting.model.hidden, b.setting.precision.feed_forward
    up = Matrix(f"{name}_up", ffn.intermediate * (1 + ffn.gated), hidden)
    node = b.matmul(up, "feed_forward", after, tokens, compute)
    node = _activation(b, node, tokens * ffn.intermediate, ffn.gated, name)
    return b.matmul(Matrix(f"{name}_down", hidden, ffn.intermediate), "feed_forward", node, tokens, compute)


def _activation(b: _Builder, after: int, elements: float, gated: bool, name: str) -> int:
    return b.vector(f"{name}_activation", "feed_forward", "activation", (after,), elements,
                    _FLOP["gated" if gated else "plain"], exp=1.0, reads=1.0 + gated)  # fmt: skip


def _experts(b: _Builder, layer: LayerSpec, moe: MoeSpec, after: int) -> list[int]:
    """Router, the experts that the step's tokens touch, and the shared experts beside them."""
    s, tokens, hidden = b.setting, b.setting.tokens, b.setting.model.hidden
    (router,) = router_matrices(layer, hidden)
    node = b.matmul(router, "router", after, tokens, s.precision.activations, weight_byte=s.stored_byte)
    work = ExpertWork(
        tokens=tokens, hidden=hidden, intermediate=moe.intermediate, matrices=1 + moe.gated, experts=moe.experts,
        chosen=moe.experts_per_token, ranks=1, routing=exponent(s.step.routing),
    )  # fmt: skip
    formats = ExpertFormats(
        activation_byte=s.activation_byte, operand_byte=s.activation_byte, written_byte=s.activation_byte, weight_byte=0.0,
        compute_format=FORMATS.index(s.precision.feed_forward),
    )  # fmt: skip
    stored = [float(sizes.matrix_bytes(m, s.precision)) / m.elements for m in expert_matrices(layer, hidden)]
    byte = dict(zip(("experts_up", "experts_down"), stored, strict=True))
    for name, columns in expert_kernels(work, formats):
        product = {"weight_byte": byte[name]} if name in byte else {}
        node = b.record(name, (node, after) if name == "permute" else (node,), {**columns, **product})
    combined = node
    if not moe.shared_intermediate:
        return [combined]
    shared = FeedForwardSpec(intermediate=moe.shared_intermediate, gated=moe.gated)
    return [combined, _dense(b, shared, after, "shared")]


def entry_template(setting: Setting) -> Template:
    """Embedding lookup of the step's tokens (of vision patches: their projection, which stands in the same place)."""
    b = _Builder(setting)
    model = setting.model
    if model.vocabulary:
        read = setting.stored_byte / setting.activation_byte
        b.vector("embedding", "embedding", "embedding", (STREAM,), setting.tokens * model.hidden, 0.0, reads=read)
    else:
        patches = Matrix("patches", model.hidden, max(model.patch_elements, 1))
        b.matmul(patches, "projection", STREAM, setting.tokens, setting.precision.attention)
    return b.template("entry")


def exit_template(setting: Setting) -> Template:
    """Final norm, output head on the LAST token of each sequence only, and sampling."""
    b = _Builder(setting)
    model, precision = setting.model, setting.precision
    sequences = sum(group.sequences for group in setting.groups)
    rows = setting.tokens if model.family == "encoder" and model.head else sequences
    node = b.vector("final_norm", "vector", "norm", (STREAM,), rows * model.hidden, _FLOP["norm"])
    width = (model.vocabulary if model.head else 0) + model.classes
    if width:
        head = Matrix("head", width, model.hidden)
        node = b.matmul(head, "head", node, rows, precision.head, weight_byte=setting.stored_byte)
        if model.head:
            width = model.vocabulary * setting.chips + model.classes
            node = b.collective("all_gather", node, rows * width)
    if model.head and model.family != "encoder":
        b.vector("sampling", "sampling", "sampling", (node,), rows * width, 3.0, exp=1.0, writes=1.0 / width)
    return b.template("exit")
