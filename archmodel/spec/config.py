"""One table of a model's `config.json`, read with its aliases and class defaults; every problem is noted, none raises."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from archmodel.errors import Problem, SpecError
from archmodel.spec.reader import read_text, shown

#: the name used here -> the names that families of models give the same thing
ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "kv_n_heads"),
    "head_dim": ("d_kv",),
    "intermediate_size": ("n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_top_k", "top_k_experts"),
}

_MOST = 10**9  # no size of a model is larger; keeps sums of products exact and loops short
_MISSING = object()


class _DuplicateKey(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [key for key, _ in pairs]
        raise _DuplicateKey(next(key for key in table if names.count(key) > 1))
    return table


def _no_constant(word: str) -> Any:
    raise ValueError(f"holds {word}, which is no JSON number")


def read_json(path: str | Path) -> dict[str, Any]:
    """The object of a JSON file (UTF-8, with or without a byte order mark). Raises SpecError."""
    file, text = str(path), read_text(path)
    try:
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _DuplicateKey as error:
        raise SpecError(file, [Problem(str(error), "stands twice in one object; keep one")]) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SpecError(file, [Problem("file", f"is not valid JSON: {error.msg} at {where}")]) from None
    except RecursionError:
        raise SpecError(file, [Problem("file", "is nested too deeply for a config.json")]) from None
    except ValueError as error:
        raise SpecError(file, [Problem("file", str(error))]) from None
    if not isinstance(table, dict):
        raise SpecError(file, [Problem("file", "must hold one JSON object", shown(table))])
    return table


class Config:
    """A table of a `config.json` with the class defaults of its family.

    The readers return a harmless 1 (or False) for a value that they note as a problem, so that one pass finds them
    all; `good` says whether values may be combined.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        defaults: Mapping[str, Any],
        problems: dict[str, Problem],
        prefix: str = "",
    ) -> None:
        self.table = table
        self.defaults = defaults
        self.problems = problems
        self.prefix = prefix

    def inside(self, key: str, defaults: Mapping[str, Any]) -> Config:
        """The table that `key` holds."""
        table = self.table.get(key, _MISSING)
        if not isinstance(table, Mapping):
            self.note(key, "missing" if table is _MISSING else "must be an object")
            table = {}
        return Config(table, defaults, self.problems, f"{self.prefix}{key}.")

    def flattened(self, *keys: str) -> Config:
        """This table with the entries of the tables `keys` beside its own."""
        inner = [self.inside(key, {}).table for key in keys]
        table = {name: value for part in (*inner, self.table) for name, value in part.items()}
        return Config(table, self.defaults, self.problems, self.prefix)

    def names(self, key: str) -> list[str]:
        """Names under which the table holds `key`."""
        return [name for name in (key, *ALIASES.get(key, ())) if name in self.table]

    def note(self, key: str, rule: str) -> None:
        """Note a problem with `key`, under the name and with the value that the file gives it."""
        held = self.names(key)
        name = held[0] if held else key
        value = shown(self.table[name]) if held else ""
        self.problems.setdefault(self.prefix + key, Problem(self.prefix + name, rule, value))

    def good(self, *keys: str) -> bool:
        """No problem is noted with any of `keys`."""
        return all(self.prefix + key not in self.problems for key in keys)

    def value(self, key: str) -> Any:
        """Value of `key`, its class default where it is absent, or `_MISSING`."""
        held = self.names(key)
        if not held:
            return self.defaults.get(key, _MISSING)
        if any(self.table[name] != self.table[held[0]] for name in held[1:]):
            self.note(key, f"disagrees with {' and '.join(held[1:])}, another name of the same thing")
        return self.table[held[0]]

    def given(self, key: str) -> bool:
        """`key` has a value that is not null."""
        return self.value(key) not in (_MISSING, None)

    def size(self, key: str, low: int = 1, most: int = _MOST) -> int:
        """An integer from `low` to `most`."""
        value = self.value(key)
        if value is _MISSING:
            self.note(key, "missing")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.note(key, "must be an integer")
        elif not low <= value <= most:
            self.note(key, f"must be >= {low}" if value < low else f"must be <= {most}")
        return int(value) if self.good(key) else 1

    def size_or(self, key: str, otherwise: int) -> int:
        """The same, or `otherwise` where the value is null or absent."""
        return self.size(key) if self.given(key) else otherwise

    def flag(self, key: str) -> bool:
        """true or false; null and absent (without a class default) are false."""
        value = self.value(key)
        if value is _MISSING or value is None:
            return False
        if not isinstance(value, bool):
            self.note(key, "must be true or false")
            return False
        return value

    def listed(self, key: str, entries: Iterable[Any], length: int | None = None) -> list[Any] | None:
        """A list of `entries`, `length` long; None where it is null, absent or noted as a problem."""
        value = self.value(key)
        if value is _MISSING or value is None:
            return None
        known = list(entries) if not isinstance(entries, range) else entries
        if not isinstance(value, list):
            self.note(key, "must be a list")
        elif wrong := [entry for entry in value if isinstance(entry, bool) or entry not in known]:
            words = f"integers below {len(known)}" if isinstance(known, range) else ", ".join(known)
            self.note(key, f"holds {shown(wrong[0])}, which is not supported; known: {words}")
        elif length is not None and len(value) != length:
            self.note(key, f"has {len(value)} entries, must have {length}, one for each layer")
        return list(value) if self.good(key) else None
