"""The files that a command names, with what the user overrides: a chip or system, and a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archmodel.spec.chip import ChipSpec
from archmodel.spec.toml import WORKLOAD_TABLES, load_chip, load_workload, read_table
from archmodel.spec.workload import WorkloadSpec


def inputs(chip_file: Path, workload_file: Path, overrides: dict[str, Any]) -> tuple[ChipSpec, WorkloadSpec]:
    """Both specs, each with the overrides that are its own."""
    given = {} if is_json(workload_file) else read_table(workload_file)
    for_chip: dict[str, Any] = {}
    for_workload: dict[str, Any] = {}
    for key, value in overrides.items():
        table = key.partition(".")[0]
        laid_over = table in ("placement", "precision")  # the workload's go over the chip's, where it has any
        if table in WORKLOAD_TABLES and (not laid_over or table in given):
            for_workload[key] = value
        if table not in WORKLOAD_TABLES or table == "placement" or (laid_over and table not in given):
            for_chip[key] = value
    return load_chip(chip_file, for_chip), load_workload(workload_file, for_workload)


def is_json(file: Path) -> bool:
    return file.suffix.lower() == ".json"
