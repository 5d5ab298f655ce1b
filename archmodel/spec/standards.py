"""DRAM standards as data: `dram_standards.toml` read into frozen values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

import attrs

from archmodel.spec.fields import choice, number, text


@attrs.frozen(kw_only=True)
class DramStandard:
    """Organisation and timings of one channel (pseudo-channel) of a DRAM standard; JEDEC names of the timings."""

    data_rate_gbit_per_s: float = number("nominal rate of one pin", above=0)
    channel_bit: int = number("data width of a channel", above=0)
    burst_length: int = number("bits that one column command moves on a pin", above=0)
    bits_per_clock: int = number("bits on a pin in one cycle of the command clock", above=0)
    banks: int = number("banks of a channel, all groups", above=0)
    bank_groups: int = number("bank groups of a channel", above=0)
    page_byte: int = number("row of one bank across the channel", above=0)
    ccd_l_bursts: float = number("column to column in one bank group, in bursts", at_least=1)
    t_ccd_l_ns: float = number("column to column in one bank group, at least", at_least=0)
    t_rc_ns: float = number("activate to activate, one bank", above=0)
    t_rcd_ns: float = number("activate to column", above=0)
    t_rp_ns: float = number("precharge to activate", above=0)
    t_ras_ns: float = number("activate to precharge", above=0)
    t_rrd_ns: float = number("activate to activate, different bank groups", above=0)
    t_faw_ns: float = number("window that holds four activates at most", above=0)
    t_cl_ns: float = number("read to data", above=0)
    t_cwl_ns: float = number("write to data", above=0)
    t_rtp_ns: float = number("read to precharge", above=0)
    t_wr_ns: float = number("end of write data to precharge", above=0)
    t_wtr_ns: float = number("end of write data to read, same bank group", above=0)
    refresh: str = choice("how the controller refreshes", "all_bank", "per_bank")
    t_refi_ns: float = number("interval in which every bank is refreshed once", above=0)
    t_rfc_ns: float = number("all-bank refresh", above=0)
    t_rfc_bank_ns: float = number("per-bank refresh; 0 where there is none", at_least=0)
    stack_channels: int = number("channels of one stack; 0 is not stacked", at_least=0)
    stack_gb: float = number("usual capacity of one stack", at_least=0)
    source: str = text("where the numbers come from", required=True)

    def __attrs_post_init__(self) -> None:
        if self.refresh == "per_bank" and self.t_rfc_bank_ns == 0.0:
            raise ValueError("t_rfc_bank_ns: 0, must be > 0 with refresh = per_bank")


@attrs.frozen(kw_only=True)
class DramController:
    """What the timings leave open: how far a channel's controller reorders."""

    queue_requests: int = number("requests that it can reorder", above=0)
    write_batch_bursts: int = number("write bursts drained between two turnarounds of the bus", above=0)
    turnaround_cycles: float = number("idle clocks between read data and write data", at_least=0)
    source: str = text("where the numbers come from", required=True)


def _read() -> tuple[Mapping[str, DramStandard], DramController]:
    table = tomllib.loads(files("archmodel.spec").joinpath("dram_standards.toml").read_text(encoding="utf-8"))
    standards = {name: DramStandard(**values) for name, values in table["standards"].items()}
    return MappingProxyType(standards), DramController(**table["controller"])


#: standard name -> values, and the controller that all of them are used with
STANDARDS, CONTROLLER = _read()
