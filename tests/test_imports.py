"""Imports point down: what a file may import is a matter of its floor."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import archmodel

PACKAGE = Path(archmodel.__file__).parent

#: floors from the ground up; a file imports from its own floor and from below
FLOORS = (
    ("errors", "units", "dtypes", "theory"),
    ("kernels",),
    ("spec",),
    ("matrices", "plan"),
    ("sizes", "costs", "operations", "piece", "sharing", "experts", "table_file", "expert_table", "holdout", "parallel"),
    ("components",),
    ("steps",),
    ("template",),
    ("soc", "layers"),
    ("cards",),
    ("residents",),
    ("partition", "operation_table", "eager"),
    ("cells",),
    ("residency", "predict", "doors"),
    ("accuracy", "operation_power"),
    ("calibration",),
    ("schedule",),
    ("energy_kinds",),
    ("result",),
    ("evaluate",),
    ("serving", "lifetimes", "economics", "clocks", "light"),
    ("splitting",),
    ("validation",),
    ("explain", "audit"),
    ("report",),
    ("options", "inputs"),
    ("studies",),
    ("cli",),
    ("__init__", "__main__"),
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """Top-level room of a module: archmodel.spec.chip -> spec, archmodel -> __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def own(names: set[str]) -> set[str]:
    """Rooms of archmodel among imported names; `from archmodel import sizes` is the room sizes."""
    rooms = {
        room(name) for name in names if name.split(".")[0] == "archmodel" and name not in ("archmodel", "archmodel.__version__")
    }
    return {name for name in rooms if name in FLOOR_OF or (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_down(file):
    here = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert here in FLOOR_OF, f"{here} has no floor yet: add it to FLOORS"
    above = {name for name in own(imported(file)) if FLOOR_OF[name] > FLOOR_OF[here]}
    assert not above, f"{file.name} imports from above: {sorted(above)}"


@pytest.mark.parametrize("file", sorted((PACKAGE / "kernels").glob("*.py")), ids=lambda f: f.name)
def test_kernels_know_numpy_and_numba_only(file):
    allowed = {"numpy", "numba", "typing", "collections", "functools", "pathlib", "__future__", "hashlib", "os", "tempfile",
               "math"}  # fmt: skip
    names = {name.split(".")[0] for name in imported(file) if not name.startswith("archmodel.kernels")}
    assert names <= allowed


def test_one_place_calls_numba():
    users = {str(f.relative_to(PACKAGE)) for f in FILES if any(n.split(".")[0] == "numba" for n in imported(f))}
    assert users == {"kernels/__init__.py"}


def test_only_cli_and_report_print():
    writers = {
        f.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for f in FILES
        for node in ast.walk(ast.parse(f.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert writers <= {"cli", "report", "__main__"}
