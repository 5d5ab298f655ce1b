"""The README says what the tool prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tables_of_the_main_job_are_those_of_the_readme(monkeypatch):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- generated: eval -->\n```text\n\$ [^\n]*\n(.*?)\n```", readme, re.DOTALL)
    assert block is not None
    monkeypatch.setenv("COLUMNS", "118")
    command = [sys.executable, "-m", "archmodel", "eval", "chips/hetero_v1.toml", "workloads/llm_100b.toml", "--no-report"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    printed = "\n".join(line.rstrip() for line in run.stdout.splitlines()).strip()
    assert printed == block[1].split("\n\nFiles\n")[0], "run benchmarks/update_readme.py"
