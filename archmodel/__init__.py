"""A cycle-approximate model of heterogeneous chips for Transformer inference.

from archmodel import load_chip, load_workload, evaluate

result = evaluate(load_chip("chips/hetero_v1.toml"), load_workload("workloads/llm_100b.toml"))
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archmodel.evaluate import evaluate
    from archmodel.result import Result
    from archmodel.spec.toml import load_chip, load_workload

__all__ = ["Result", "evaluate", "load_chip", "load_workload"]
__version__ = "0.2.0"

_HOMES = {"Result": "archmodel.result", "load_chip": "archmodel.spec.toml", "load_workload": "archmodel.spec.toml"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: the import of the package itself costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _Package(ModuleType):
    """Keeps `archmodel.evaluate` the function: the import of the submodule would otherwise put itself in its place."""

    @property
    def evaluate(self) -> Callable[..., Any]:
        function: Callable[..., Any] = import_module("archmodel.evaluate").evaluate
        return function

    @evaluate.setter
    def evaluate(self, submodule: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
