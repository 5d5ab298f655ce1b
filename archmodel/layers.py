"""A model and a step -> templates of operations; knows no hardware. Alike layers share one template."""

from __future__ import annotations

from archmodel import sizes
from archmodel.experts import ExpertFormats, ExpertWork, expert_kernels, exponent
from archmodel.matrices import Matrix, cross_attention_matrices, expert_matrices, mixer_matrices, router_matrices, scan_work
from archmodel.operations import Kind
from archmodel.spec.model import (
    AttentionSpec,
    FeedForwardSpec,
    LatentAttentionSpec,
    LayerSpec,
    MoeSpec,
)
from archmodel.spec.workload import ROLES
from archmodel.template import DEFERRED, FLOP, STREAM, Builder, Setting, Template
from archmodel.units import FORMATS, element_bytes


def layer_template(layer: LayerSpec, setting: Setting, name: str, encoder: bool = False) -> Template:
    """Operations of one layer, from the residual stream to the residual stream."""
    b = Builder(setting)
    chips = setting.degrees
    normed = b.norm("norm", STREAM, layer.norm_bias) if layer.norms else STREAM
    mixed = _mixer(b, layer, normed, encoder)
    if layer.parallel:
        further = _feed_forward(b, layer, normed)
        placed = setting.placement
        together = placed.tensor_parallel > 1 or (placed.projection == placed.feed_forward and not placed.experts)
        if together:
            branches = b.reduced((*further, mixed), chips.mixer)
        else:
            branches = (*_summed(b, layer, further), *b.reduced((mixed,), chips.mixer))
        b.residual("residual", (*branches, STREAM))
        return b.template(name)
    stream = b.residual("residual", (*b.reduced((mixed,), chips.mixer), STREAM))
    if layer.cross_attention is not None and not encoder:
        normed = b.norm("cross_norm", stream, layer.norm_bias)
        crossed = _cross_attention(b, layer.cross_attention, normed)
        stream = b.residual("cross_residual", (*b.reduced((crossed,), chips.mixer), stream))
    if layer.feed_forward is not None or layer.moe is not None:
        normed = b.norm("ffn_norm", stream, layer.norm_bias) if layer.norms > 1 else stream
        branches = _feed_forward(b, layer, normed)
        if setting.placement.deferred_experts and setting.model.has_experts and not encoder:
            return _deferred(b, layer, branches, stream, name)
        b.residual("ffn_residual", (*_summed(b, layer, branches), stream))
    return b.template(name)


def _deferred(b: Builder, layer: LayerSpec, branches: tuple[int, ...], stream: int, name: str) -> Template:
    """The end of a layer whose routed experts are added up a layer later, so that the next attention need not wait.

    (Expert deferral of KTransformers, SOSP 2025; here of all experts that a token chose.)
    """
    now, routed = _by_routing(layer, branches)
    chips = b.setting.degrees
    added = b.reduced(now, chips.feed_forward) if now else ()
    late = b.reduced(routed, chips.experts)[0] if routed else -1
    b.residual("ffn_residual", (*added, stream, DEFERRED))
    return b.template(name, deferred=late)


def _by_routing(layer: LayerSpec, branches: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Branches of a feed-forward part that all tokens take, and that of the routed experts."""
    routed = branches[1 if layer.feed_forward is not None else 0 :][:1] if layer.moe is not None else ()
    return tuple(branch for branch in branches if branch not in routed), routed


def _summed(b: Builder, layer: LayerSpec, branches: tuple[int, ...]) -> tuple[int, ...]:
    """Branches of a feed-forward part, added up over the chips that divide them: in one exchange, unless experts are apart."""
    chips = b.setting.degrees
    if not b.setting.placement.experts:
        return b.reduced(branches, chips.feed_forward)
    now, routed = _by_routing(layer, branches)
    return (*(b.reduced(now, chips.feed_forward) if now else ()), *(b.reduced(routed, chips.experts) if routed else ()))


def _mixer(b: Builder, layer: LayerSpec, after: int, encoder: bool) -> int:
    mixer = layer.mixer
    if isinstance(mixer, AttentionSpec):
        return _attention(b, mixer, after, encoder)
    if isinstance(mixer, LatentAttentionSpec):
        return _latent_attention(b, mixer, after)
    return _recurrent(b, layer, after)


def _attention(b: Builder, mixer: AttentionSpec, after: int, encoder: bool) -> int:
    s, tokens, hidden = b.setting, b.setting.tokens, b.setting.model.hidden
    compute = s.precision.attention
    width, kv_width = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    qkv, out = mixer_matrices(mixer, hidden)
    node = b.matmul(qkv, "projection", after, tokens, compute)
    if mixer.rotary or mixer.qk_norm != "none":
        flop = FLOP["rotary"] * mixer.rotary + FLOP["norm"] * (mixer.qk_norm != "none")
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
        node = b.vector("output_gate", "attention", "activation", (node,), tokens * width, FLOP["gated"], exp=1.0, reads=2.0)
    return b.matmul(out._replace(name="attention_out"), "projection", node, tokens, compute)


def _latent_attention(b: Builder, mixer: LatentAttentionSpec, after: int) -> int:
    """MLA. Generation absorbs the key and value expansions (scores against the latent); context expands them."""
    s, tokens, hidden, compute = b.setting, b.setting.tokens, b.setting.model.hidden, b.setting.precision.attention
    made = {matrix.name: matrix for matrix in mixer_matrices(mixer, hidden)}
    latent, rank = made["kv_down"].n, mixer.q_lora_rank
    first = made["q_down" if rank else "q"]
    both = Matrix("q_and_kv_down" if rank else "q_and_kv", first.n + latent, hidden)
    node = b.matmul(both, "projection", after, tokens, compute)
    node = b.vector("latent_norm", "attention", "norm", (node,), tokens * (rank + latent), FLOP["norm"])
    if rank:
        node = b.matmul(made["q_up"], "projection", node, tokens, compute)
    node = b.vector("rotary", "attention", "rotary", (node,), tokens * (mixer.heads + 1) * mixer.qk_rope_head_dim,
                    FLOP["rotary"])  # fmt: skip
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


def _recurrent(b: Builder, layer: LayerSpec, after: int) -> int:
    """State space or linear attention: projections around one scan, whose state is read and written per sequence."""
    s, tokens = b.setting, b.setting.tokens
    *before, out = mixer_matrices(layer.mixer, s.model.hidden)
    node = after
    for matrix in before:
        node = b.matmul(matrix, "projection", node, tokens, s.precision.attention)
    sequences = s.sequences
    work = scan_work(layer.mixer)
    node = b.add(
        "scan", Kind.SCAN, "attention", "scan", (node,), compute_format=FORMATS.index("fp32"),
        flop=tokens * work.flop_per_token, exp=tokens * work.exp_per_token,
        kv_byte=2 * sequences * work.state_elements * element_bytes(s.precision.state),
        read_byte=tokens * work.input_elements * s.activation_byte,
        write_byte=tokens * work.output_elements * s.activation_byte,
    )  # fmt: skip
    return b.matmul(out._replace(name="mixer_out"), "projection", node, tokens, s.precision.attention)


def _cross_attention(b: Builder, mixer: AttentionSpec, after: int) -> int:
    """Decoder queries against the encoder's keys and values, which are projected once, in the step that encodes."""
    s, tokens, hidden, compute = b.setting, b.setting.tokens, b.setting.model.hidden, b.setting.precision.attention
    query, key_value, out = cross_attention_matrices(mixer, hidden)
    node = b.matmul(query, "projection", after, tokens, compute)
    sequences = s.sequences
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


def _feed_forward(b: Builder, layer: LayerSpec, after: int) -> tuple[int, ...]:
    """Last operations of the dense and expert branches, which the residual adds up."""
    branches: list[int] = []
    if layer.feed_forward is not None:
        branches.append(_dense(b, layer.feed_forward, after, "ffn"))
    if layer.moe is not None:
        branches += _experts(b, layer, layer.moe, after)
    return tuple(branches)


def _dense(b: Builder, ffn: FeedForwardSpec, after: int, name: str) -> int:
    tokens, hidden, compute = b.setting.tokens, b.setting.model.hidden, b.setting.precision.feed_forward
    up = Matrix(f"{name}_up", ffn.intermediate * (1 + ffn.gated), hidden)
    node = b.matmul(up, "feed_forward", after, tokens, compute)
    node = _activation(b, node, tokens * ffn.intermediate, ffn.gated, name)
    return b.matmul(Matrix(f"{name}_down", hidden, ffn.intermediate), "feed_forward", node, tokens, compute)


def _activation(b: Builder, after: int, elements: float, gated: bool, name: str) -> int:
    return b.vector(f"{name}_activation", "feed_forward", "activation", (after,), elements,
                    FLOP["gated" if gated else "plain"], exp=1.0, reads=1.0 + gated)  # fmt: skip


def _experts(b: Builder, layer: LayerSpec, moe: MoeSpec, after: int) -> list[int]:
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
        after_it = (node, after) if name == "permute" else (node,)
        if s.placement.experts and name != "route":  # tokens cross to the experts once, not once for each expert
            columns = {**columns, "role": ROLES.index("experts")}
        node = b.record(name, after_it, {**columns, **product, "expert_work": work})
    combined = node
    if not moe.shared_intermediate:
        return [combined]
    shared = FeedForwardSpec(intermediate=moe.shared_intermediate, gated=moe.gated)
    return [combined, _dense(b, shared, after, "shared")]


def entry_template(setting: Setting) -> Template:
    """Embedding lookup of the step's tokens (of vision patches: their projection, which stands in the same place)."""
    b = Builder(setting)
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
    b = Builder(setting)
    model, precision = setting.model, setting.precision
    sequences = setting.sequences
    rows = setting.tokens if model.family == "encoder" and model.head else sequences
    after = STREAM
    if setting.placement.deferred_experts and model.has_experts:
        after = b.residual("ffn_residual", (STREAM, DEFERRED))
    node = b.vector("final_norm", "vector", "norm", (after,), rows * model.hidden, FLOP["norm"])
    width = (model.vocabulary if model.head else 0) + model.classes
    if width:
        head = Matrix("head", width, model.hidden)
        node = b.matmul(head, "head", node, rows, precision.head, weight_byte=setting.stored_byte)
        if model.head:
            width = model.vocabulary * setting.degrees.head + model.classes
            node = b.collective("all_gather", node, rows * width, setting.degrees.head)
    if model.head and model.family != "encoder":
        b.vector("sampling", "sampling", "sampling", (node,), rows * width, 3.0, exp=1.0, writes=1.0 / width,
                 sequences=rows)  # fmt: skip
    return b.template("exit")
