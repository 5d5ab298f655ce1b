"""What sets a block's voltage, and what stands between a chip and the mains. Numbers only."""

from __future__ import annotations

import attrs

from archmodel.spec.fields import curve, number, text


@attrs.frozen(kw_only=True)
class DvfsSpec:
    """Clock and voltage of a block, a part of its spec. Without points its energies hold at any clock."""

    clock_ghz: float = number("clock", above=0, at_most=20)
    voltage_points: tuple[tuple[float, float], ...] = curve(
        "voltage that a clock needs: [clock_ghz, voltage_v], linear in between; none: no voltage scaling", default=()
    )
    nominal_clock_ghz: float = number("clock at which the block's energies and static power hold", at_least=0, at_most=20,
                                      default=0.0)  # fmt: skip
    clock_static_share: float = number("part of `static_power_w` at the nominal clock that is clock tree, not leakage",
                                       at_least=0, at_most=1, default=0.0)  # fmt: skip


@attrs.frozen(kw_only=True)
class BoardSpec:
    """From the supply pins of chip and memory to the connector of their board."""

    vrm_efficiency: float = number("output over input of the voltage regulators", above=0, at_most=1)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class ServerSpec:
    """From the connectors of the boards to the mains; a chip bears its share of the server."""

    chips_per_server: int = number("chips that share it", above=0, at_most=65536)
    host_power_w: float = number("processors, their memory, network and storage of one server, idling fans too", at_least=0)
    psu_efficiency: float = number("output over input of the power supplies", above=0, at_most=1)
    fan_share: float = number("what boards and host draw in addition under load for cooling, over their power", at_least=0,
                              at_most=1, default=0.0)  # fmt: skip
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class FacilitySpec:
    """The building around the servers."""

    pue: float = number("power of the building over that of its servers", at_least=1, at_most=10)
    source: str = text("where the numbers come from", required=True)
