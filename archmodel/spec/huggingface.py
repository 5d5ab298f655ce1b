"""A model's own `config.json` (Hugging Face) -> ModelSpec. Reads local files only.

Source of the shapes: the modelling code of transformers 5.24 for each `model_type`. The count is that of the model
which generates: multi-token-prediction layers are left out; a vision tower is counted and stands in `towers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from archmodel.errors import Problem, SpecError
from archmodel.spec.config import Config, read_json
from archmodel.spec.decoder import decoder, refuse_others
from archmodel.spec.encoders import ENCODERS, WRAPPERS, encoder
from archmodel.spec.families import DECODERS
from archmodel.spec.model import ModelSpec
from archmodel.spec.reader import nearest, shown

#: every `model_type` that is read
MODEL_TYPES = (*DECODERS, *ENCODERS, *WRAPPERS)


def read_config(path: str | Path) -> ModelSpec:
    """The model of a `config.json`, named after the file (or its folder, where the file is called config.json).

    Raises SpecError with every problem of the file: it is no JSON object, a key is missing, wrong or contradicts
    another, the `model_type` is not known, or a key changes the shape in a way that is not modelled.
    """
    file = Path(path)
    name = file.resolve().parent.name if file.stem == "config" else file.stem
    model = model_from_config(read_json(file), str(path))
    return attrs.evolve(model, name=name or "model", source=str(path))


def model_from_config(config: Mapping[str, Any], file: str) -> ModelSpec:
    """The model of an already read config; `file` names it in errors. Raises SpecError as `read_config` does."""
    problems: dict[str, Problem] = {}
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise SpecError(file, [_unknown(config, model_type)])
    if model_type in DECODERS:
        model = _decoder(config, model_type, problems, "")
    elif model_type in ENCODERS:
        model = encoder(ENCODERS, model_type, Config(config, ENCODERS[model_type].defaults, problems), model_type)
    else:
        model = _wrapped(config, model_type, problems)
    if problems:
        raise SpecError(file, list(problems.values()))
    return attrs.evolve(model, source=file)


def _decoder(table: Mapping[str, Any], model_type: str, problems: dict[str, Problem], prefix: str) -> ModelSpec:
    family = DECODERS[model_type]
    return decoder(Config(table, family.defaults, problems, prefix), family, model_type)


def _wrapped(table: Mapping[str, Any], model_type: str, problems: dict[str, Problem]) -> ModelSpec:
    """A language model in `text_config` with a vision tower in `vision_config`."""
    inner, tower, defaults = WRAPPERS[model_type]
    outer = Config(table, {}, problems)
    refuse_others(outer, {"audio_config": (None,)})
    text = outer.inside("text_config", {})
    if text.table.get("model_type", inner) != inner:
        text.note("model_type", f"must be {inner} in a {model_type}")
    model = _decoder(text.table, inner, problems, text.prefix)
    if not outer.given("vision_config"):
        return model
    vision = outer.inside("vision_config", defaults)
    return attrs.evolve(model, towers=(tower(vision, model.hidden),))


def _unknown(config: Mapping[str, Any], model_type: Any) -> Problem:
    if "model_type" not in config:
        return Problem("model_type", "missing; it names the architecture, for example llama")
    if not isinstance(model_type, str):
        return Problem("model_type", "must be a string", shown(model_type))
    known = ", ".join(sorted(MODEL_TYPES))
    return Problem("model_type", f"not supported{nearest(model_type, MODEL_TYPES)}; known: {known}", shown(model_type))
