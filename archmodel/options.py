"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a number, for example npu.clock_ghz=1.2. May be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
ChipFile = Annotated[Path, typer.Argument(metavar="CHIP", help="A chip, or a system of chips (TOML).", show_default=False)]
PowerCap = Annotated[
    float | None,
    typer.Option(
        "--power-cap-w", metavar="W", help="Find the clocks at which each phase keeps this mean power, a system's all cards."
    ),
]
MinEnergy = Annotated[
    bool, typer.Option("--min-energy", help="Find the factor on all clocks with the least energy within the limits.")
]
LatencyLimit = Annotated[float | None, typer.Option("--latency-limit-ms", metavar="MS", help="Limit on the whole run.")]
Period = Annotated[
    float | None,
    typer.Option("--period-ms", metavar="MS", help="With --min-energy: one run in this time, idle in between."),
]
