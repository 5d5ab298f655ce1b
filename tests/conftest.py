"""What every test may rely on."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_terminal_width(monkeypatch):
    """Tables are as wide as in a pipe, whatever terminal the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)
