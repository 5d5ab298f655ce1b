"""Where a step enters and leaves a chip: host work, token ids or embeddings over the links, results collected."""

from __future__ import annotations

import attrs

from archmodel.kernels.timeline import CLASS_HOST, CLASS_SYNCHRONISATION
from archmodel.partition import Placer
from archmodel.piece import Piece
from archmodel.soc import Soc
from archmodel.template import STREAM, Setting, Template

_TOKEN_ID_BYTE = 4.0
_PIXEL_BYTE = 1.0  # of a patch element as the host sends it: 8-bit colour


def place_entry(soc: Soc, setting: Setting, template: Template) -> Piece:
    """The entry: tokenised and embedded on the host, or looked up on a unit from token ids that the host sends."""
    placer = Placer(soc, setting, template)
    host = soc.host
    software, sequences = soc.chip.software, setting.sequences
    if host and (software_us := software.step_us + sequences * software.sequence_us) > 0.0:
        lies = placer.stream_owner
        placer.stream = placer.add("schedule", host[0], CLASS_HOST, (STREAM,), lies, duration_s=software_us * 1e-6)
    if host and _looks_up_elsewhere(soc, setting) and setting.step.phase != "decode":
        name, spec = host
        seconds = spec.step_us * 1e-6 + setting.tokens * spec.tokenise_us_per_token * 1e-6
        node = placer.add("host_tokenise", name, CLASS_HOST, (placer.stream,), duration_s=seconds)
        each = _TOKEN_ID_BYTE if setting.model.vocabulary else _PIXEL_BYTE * setting.model.patch_elements
        placer.stream = placer.transfer("host_to_chip", name, placer.stream_owner, (node,), setting.tokens * each)
    return placer.place()


def _looks_up_elsewhere(soc: Soc, setting: Setting) -> bool:
    return soc.host is None or setting.placement.embedding != soc.host[0] or not setting.model.vocabulary


def place_exit(soc: Soc, setting: Setting, template: Template, enters: str = "") -> Piece:
    """The exit: results are collected over the network by the control core, which hands them to the host."""
    placer = Placer(soc, setting, template, enters)
    piece = placer.place()
    if not soc.host:
        return piece
    node = piece.exit
    source = placer.lies(node)
    sequences = setting.sequences
    byte = sequences * _TOKEN_ID_BYTE
    if setting.model.family == "encoder":
        byte = sequences * setting.model.hidden * setting.activation_byte
    if name := soc.dispatcher(source):
        control = soc.controls[name]
        node = placer.transfer("collect", source, name, (node,), byte)
        seconds = control.completion_cycles / (control.clock_ghz * 1e9)
        node = placer.add("complete", name, CLASS_SYNCHRONISATION, (node,), duration_s=seconds)
        trapped = (
            sequences
            / setting.step.sequences
            * control.exceptions_per_step
            * control.exception_cycles
            / (control.clock_ghz * 1e9)
        )
        if trapped > 0.0:
            node = placer.add("exceptions", name, CLASS_SYNCHRONISATION, (node,), duration_s=trapped)
        source = name
    node = placer.transfer("chip_to_host", source, soc.host[0], (node,), byte)
    return attrs.evolve(piece, records=tuple(placer.records), exit=node)
