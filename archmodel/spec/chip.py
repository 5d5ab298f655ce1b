"""A chip as a person writes it: one frozen class per kind of block. Numbers only; behaviour is in `components/`.

Every top-level table of a chip file is a block. Its kind is its `kind` key, or else its own name, so that `[npu]` is an
NPU and `[npu_b]` with `kind = "npu"` is a second one. Peaks are derived from these numbers, never typed.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from archmodel.spec.capabilities import CAPABILITIES as CAPABILITIES
from archmodel.spec.cim import CimSpec as CimSpec
from archmodel.spec.cost import CostSpec
from archmodel.spec.fields import ascending, by_format, by_name, choice, flag, names, number, text
from archmodel.spec.neuromorphic import NeuromorphicSpec as NeuromorphicSpec
from archmodel.spec.power import BoardSpec, DvfsSpec, FacilitySpec, ServerSpec
from archmodel.spec.standards import STANDARDS
from archmodel.spec.workload import PlacementSpec, PrecisionSpec

#: operators that a host calls one at a time
OPERATORS = ("matmul", "softmax", "norm", "activation", "collective")


@attrs.frozen(kw_only=True)
class GpuSpec(DvfsSpec):
    """GPU cores: matrix and vector lanes behind a shared cache (`buffer`), streaming from `memory`."""

    cores: int = number("streaming multiprocessors or compute units", above=0, at_most=1e6)
    macs_per_core_per_cycle: Mapping[str, float] = by_format("dense multiply-accumulates by number format")
    vector_flop_per_core_per_cycle: float = number("FP32 vector operations, an FMA counting 2", above=0)
    exp_per_core_per_cycle: float = number("exponentials (special function units)", above=0)
    core_buffer_kib: float = number("operand memory of one core (shared memory)", above=0)
    feed_byte_per_core_per_cycle: float = number("operands from the cache into one core", above=0)
    stream_byte_per_core_per_cycle: float = number("memory traffic that one core can keep in flight", above=0)
    buffer: str = text("SRAM block that caches", required=True)
    memory: str = text("memory block it streams from", required=True)
    source: str = text("where the numbers come from", required=True)
    buffer_share: float = number("part of the cache that keeps data for the next use", above=0, at_most=1, default=1.0)
    accumulator_kib: float = number("registers of one core that hold an FP32 output tile", above=0, default=128.0)
    tile_sizes: tuple[int, ...] = ascending("candidate edges of an output tile", default=(64, 128, 256))
    attention_tile: int = number("query rows of a tile of context attention", above=0, at_most=65536, default=64)
    attention_stacked_heads: int = number("most query heads that share a load of keys and values in generation", above=0,
                                          at_most=65536, default=32)  # fmt: skip
    attention_split_waves: int = number("waves of blocks up to which generation cuts the keys", above=0, at_most=64, default=8)
    multicast: float = number("cores that share one operand fetch", at_least=1, at_most=64, default=1.0)
    overlap_exponent: float = number("how sharply the slowest limit wins; large is a plain maximum", at_least=1,
                                     at_most=64, default=4.0)  # fmt: skip
    matrix_efficiency: float = number("share of the matrix peak inside a matmul's main loop", above=0, at_most=1, default=0.9)
    matmul_stream_efficiency: float = number("share of the memory stream that a matmul keeps", above=0, at_most=1, default=0.9)
    attention_efficiency: float = number("share of the matrix peak in fused attention", above=0, at_most=1, default=0.6)
    attention_stream_efficiency: float = number("share of the memory stream that attention keeps", above=0, at_most=1,
                                                default=0.9)  # fmt: skip
    attention_block_byte_per_cycle: float = number("loads that one block of threads keeps in flight in attention", above=0,
                                                   default=16.0)  # fmt: skip
    vector_efficiency: float = number("share of the vector and exp peak inside a kernel", above=0, at_most=1, default=0.4)
    dequantise_flop: float = number("vector operations to widen one stored weight inside a matmul", at_least=0, default=4.0)
    kernel_floor_us: float = number("shortest kernel, graph node included, memory latency not", at_least=0, default=2.0)
    vector_floor_us: float = number("shortest kernel of vector work, memory latency not included", at_least=0, default=1.5)
    split_floor_us: float = number("adding up the parts of a product whose k is split", at_least=0, default=2.0)
    sustained_clock_share: float = number("clock of long matrix work, which the power limit lowers, over `clock_ghz`", above=0,
                                          at_most=1, default=1.0)  # fmt: skip
    boost_us: float = number("matrix work of one kernel before the power limit lowers the clock", at_least=0, default=2000.0)
    reduction_floor_us: float = number("shortest pass that finds one number for a whole tensor, without memory latency",
                                       at_least=0, default=6.5)  # fmt: skip
    reduction_byte_in_flight: float = number("loads that one core keeps in flight in such a pass", above=0,
                                             default=4096.0)  # fmt: skip
    buffer_latency_ns: float = number("load to use of data in the cache", at_least=0, default=140.0)
    vector_byte_per_core_per_cycle: float = number("operands that vector work keeps in flight on one core",
                                                   above=0, default=22.0)  # fmt: skip
    buffer_partitions: float = number("partitions of the cache, each of which keeps what its own cores read", at_least=1,
                                      at_most=64, default=1.0)  # fmt: skip
    row_stream_efficiency: float = number("share of cache and memory bandwidth in kernels that gather, reduce or evaluate "
                                          "functions along rows", above=0, at_most=1, default=0.53)  # fmt: skip
    grouped_efficiency: float = number("share of `matrix_efficiency` that a product in groups (experts) keeps", above=0,
                                       at_most=1, default=0.9)  # fmt: skip
    routing_floor_us: float = number("kernels that sort tokens by expert", at_least=0, default=10.0)
    kernel_ramp_us: float = number("prologue and epilogue of one wave of tiles", at_least=0, default=0.5)
    attention_floor_us: float = number("shortest generation attention, memory latency not included", at_least=0, default=6.0)
    attention_context_floor_us: float = number("shortest context attention, memory latency not included", at_least=0,
                                               default=9.0)  # fmt: skip
    attention_ramp_us: float = number("prologue and epilogue of a block of heads in generation", at_least=0, default=3.0)
    attention_vector_ramp_us: float = number("the same where one query runs on the vector lanes", at_least=0, default=3.0)
    attention_context_ramp_us: float = number("the same of a tile of context attention, its operands' loads and stores aside",
                                              at_least=0, default=2.0)  # fmt: skip
    capabilities: tuple[str, ...] = names("what it can run", *CAPABILITIES, default=CAPABILITIES)
    layout: str = text("how it lays activations out in memory", default="row_major")
    mac_energy_pj: Mapping[str, float] = by_format("energy of one MAC by format", default={"fp16": 0.72})
    vector_energy_pj_per_flop: float = number("vector operation, instruction included", at_least=0, default=1.0)
    operand_energy_pj_per_bit: float = number("cache to core: wires, shared memory, registers", at_least=0, default=0.3)
    active_power_w: float = number("clocks and issue of the matrix units while a kernel uses them, MACs not included",
                                   at_least=0, default=0.0)  # fmt: skip
    static_power_w: float = number("leakage, clocks and contexts while powered", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class NpuSpec(DvfsSpec):
    """Systolic arrays of `rows` x `cols` MACs with operand SRAM (`buffer`), streaming from `memory`."""

    arrays: int = number("identical arrays", above=0, at_most=65536)
    rows: int = number("rows of one array", above=0, at_most=65536)
    cols: int = number("columns of one array", above=0, at_most=65536)
    macs_per_pe_per_cycle: Mapping[str, float] = by_format("MACs of one processing element by format")
    dataflow: str = choice("what stays in the array: outputs, weights or inputs", "os", "ws", "is")
    vector_op_per_cycle: float = number("vector operations of the post-processing unit, all arrays", above=0)
    buffer: str = text("SRAM block that holds operand tiles", required=True)
    memory: str = text("memory block it streams from", required=True)
    source: str = text("where the numbers come from", required=True)
    double_buffered: bool = flag("loading or draining a fold hides behind the one before", default=False)
    load_rows_per_cycle: int = number("rows shifted per cycle, weights in or outputs out", above=0, at_most=65536, default=1)
    accumulator_byte: float = number("width of a partial sum", above=0, at_most=16, default=4.0)
    buffer_share: float = number("part of the buffer for operand tiles", above=0, at_most=1, default=1.0)
    command_cycles: float = number("decoding one command and starting the arrays", at_least=0, default=0.0)
    capabilities: tuple[str, ...] = names(
        "what it can run", *CAPABILITIES, default=("matmul", "activation", "quantise", "convert")
    )
    layout: str = text("how it lays activations out in memory", default="blocked")
    mac_energy_pj: Mapping[str, float] = by_format("energy of one MAC by format", default={"int8": 0.1})
    vector_energy_pj_per_flop: float = number("post-processing operation", at_least=0, default=0.2)
    operand_energy_pj_per_bit: float = number("SRAM to array: wires and edge registers", at_least=0, default=0.1)
    static_power_w: float = number("leakage and clocks while powered", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class ControlSpec(DvfsSpec):
    """Control core that dispatches commands one by one and handles completions."""

    dispatch_cycles: float = number("cycles to issue one command", at_least=0)
    completion_cycles: float = number("cycles to take one completion interrupt", at_least=0)
    synchronisation_cycles: float = number("further cycles to release a dependent command on another unit", at_least=0)
    exception_cycles: float = number("cycles of one exception", at_least=0, default=0.0)
    exceptions_per_step: float = number("exceptions in one step", at_least=0, default=0.0)
    queue_commands: int = number("commands that a unit holds ahead; 0 dispatches after completion", at_least=0, default=0)
    command_energy_nj: float = number("energy of one command", at_least=0, default=0.0)
    static_power_w: float = number("leakage and clocks while powered", at_least=0, default=0.0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class HostSpec:
    """The host: tokenisation, embedding lookup and the work of a serving step. Its energy is outside the chip."""

    tokenise_us_per_token: float = number("tokenising one token", at_least=0, default=0.0)
    embedding_gb_per_s: float = number("gather bandwidth of the embedding lookup", above=0, default=10.0)
    step_us: float = number("work for each step (batch bookkeeping, detokenising)", at_least=0, default=0.0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class SramSpec(DvfsSpec):
    """On-chip SRAM: a scratchpad or a cache, in banks."""

    capacity_mb: float = number("capacity, 1e6 bytes", above=0)
    bandwidth_byte_per_cycle: float = number("all banks together", above=0)
    latency_ns: float = number("load to use", at_least=0, default=0.0)
    read_energy_pj_per_bit: float = number("read", at_least=0, default=0.0)
    write_energy_pj_per_bit: float = number("write", at_least=0, default=0.0)
    static_power_w: float = number("leakage", at_least=0, default=0.0)
    source: str = text("where the numbers come from", required=True)


@attrs.frozen(kw_only=True)
class DramSpec:
    """DRAM tier. Its peak is channels x width x data rate; timings come from the standard's table (`dram_standards.toml`)."""

    standard: str = choice("name of the timing table", *STANDARDS)
    capacity_gb: float = number("capacity, 1e9 bytes", above=0)
    channels: int = number("independent channels", above=0, at_most=1e6)
    channel_bit: int = number("data width of one channel", above=0, at_most=65536)
    data_rate_gbit_per_s: float = number("rate of one pin", at_least=0.001, at_most=1000)
    latency_ns: float = number("unloaded load-to-use, path included", at_least=0)
    source: str = text("where the numbers come from", required=True)
    stream_efficiency: float = number(
        "measured share of the peak when streaming; 0 takes the share from the timings", at_least=0, at_most=1, default=0.0
    )
    energy_pj_per_bit: float = number("device and interface, without activations", at_least=0, default=4.0)
    activation_energy_nj: float = number("opening one row", at_least=0, default=0.0)
    static_power_w: float = number("standby and refresh", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class LinkSpec:
    """A link or network that joins blocks. `lanes` x `lane_rate_gt_per_s` x encoding is the line rate, one direction."""

    joins: tuple[str, ...] = names("blocks that it connects")
    protocol: str = choice("what its packets look like", "ucie", "noc", "pcie", "nvlink", "ethernet", "wire")
    lanes: int = number("lanes or wires, one direction", above=0, at_most=1e7)
    lane_rate_gt_per_s: float = number("transfers per second of one lane", above=0, at_most=1000)
    latency_ns: float = number("one way, first bit, routers not counted", at_least=0)
    source: str = text("where the numbers come from", required=True)
    encoding: float = number("payload bits per line bit before packets, such as 128/130", above=0, at_most=1, default=1.0)
    packet_payload_bytes: float = number("largest payload of a packet; 0 is no packets", at_least=0, default=0.0)
    packet_overhead_bytes: float = number("header and framing of a packet", at_least=0, default=0.0)
    duplex: str = choice("full: each direction has the rate; half: they share it", "full", "half", default="full")
    hops: int = number("routers or switches on the way", at_least=0, at_most=1e4, default=0)
    hop_ns: float = number("latency of one of them", at_least=0, default=0.0)
    setup_us: float = number("software and DMA set-up of one transfer", at_least=0, default=0.0)
    energy_pj_per_bit: float = number("energy of one payload bit", at_least=0, default=0.0)
    supply: str = text("block whose voltage its energy follows, as wires on a die do; empty: a voltage of its own", default="")
    static_power_w: float = number("idle power", at_least=0, default=0.0)


@attrs.frozen(kw_only=True)
class PeersSpec:
    """The other chips of a group of alike ones, as collectives see them: what joins them, and how the library uses it.

    A link of the chip leads to this block; its rate is what one chip sends. Shares are of that rate, in [0, 1].
    """

    devices: int = number("chips of the largest group, this one included", at_least=2, at_most=65536)
    source: str = text("where the numbers come from", required=True)
    fabric_gb_per_s: float = number("all chips together where there is no full switch; 0 is no limit", at_least=0, default=0.0)
    island: int = number("chips that reach each other without that fabric", at_least=1, at_most=65536, default=1)
    floor_us: float = number("shortest call", at_least=0, default=6.0)
    step_us: float = number("one step of the low-latency protocol", at_least=0, default=0.8)
    eager_share: float = number("share of the link that the low-latency protocol reaches", above=0, at_most=1, default=0.3)
    bulk_us: float = number("further start-up of the bulk protocol", at_least=0, default=25.0)
    bulk_step_us: float = number("one step of the bulk protocol", at_least=0, default=1.0)
    bulk_share: float = number("share of the link that the bulk protocol reaches", above=0, at_most=1, default=0.75)
    copy_gb_per_s: float = number("copying a chip's own part between steps", above=0, default=600.0)
    tree: bool = flag("the library has a tree of logarithmic depth (NCCL: between nodes; inside one its trees are chains)",
                      default=False)  # fmt: skip
    in_network_share: float = number("share of the link where the switch adds up (NVLS, SHARP); 0: it cannot", at_least=0,
                                     at_most=1, default=0.0)  # fmt: skip
    direct_floor_us: float = number("shortest one-shot all-reduce kernel; 0: there is none", at_least=0, default=0.0)
    direct_step_us: float = number("barrier between the halves of a two-shot one", at_least=0, default=4.0)
    direct_share: float = number("share of the link when a kernel reads its peers' memory", above=0, at_most=1, default=0.7)


@attrs.frozen(kw_only=True)
class SoftwareSpec:
    """The software stack, which is not silicon: what it costs to get from one kernel to the next."""

    name: str = text("what people call it", default="graph_replay")
    kernel_gap_us: float = number("gap between kernels of a unit without a control core", at_least=0, default=0.0)
    launch_us: Mapping[str, float] = by_name(
        "eager: from the host's call of a kernel to its start, where it waits for each; none where graphs are replayed",
        *OPERATORS, default={},
    )  # fmt: skip
    call_us: Mapping[str, float] = by_name("eager: shortest such call, the host's own work", *OPERATORS, default={})
    step_us: float = number("host work between two steps that the units wait for", at_least=0, default=0.0)
    sequence_us: float = number("the same for each sequence of the step (scheduling, sampling, detokenising)", at_least=0,
                                default=0.0)  # fmt: skip
    sampling_energy_mj_per_token: float = number("choosing one token on the device, beyond the events that are counted",
                                                 at_least=0, default=0.0)  # fmt: skip
    fused: tuple[str, ...] = names(
        "vector operations that run inside the kernel before them, where the placement fuses at all", *CAPABILITIES,
        default=("norm", "rotary", "activation", "quantise"),
    )  # fmt: skip
    matmul_time: float = number("time of its matrix products over that of the library the chip was fitted on", above=0,
                                at_most=4, default=1.0)  # fmt: skip
    softmax_passes: float = number("times that a softmax kernel of its own reads its input", at_least=1, at_most=8, default=1.0)
    prompt_interference: float = number(
        "share of the prompts in a closed loop that stall the answers of others: 1 where requests end at all times, 0.5 where "
        "all start together and prompts go first", at_least=0, at_most=1, default=1.0,
    )  # fmt: skip
    memory_share: float = number("share of the memory for weights and KV cache", above=0, at_most=1, default=0.9)
    direct_all_reduce: bool = flag("it has one-shot and two-shot all-reduce kernels", default=False)
    source: str = text("where the numbers come from", default="assumption: graph replay without gaps")


@attrs.frozen(kw_only=True)
class PowerSpec:
    """Chip-wide power that no block owns."""

    static_power_w: float = number("clock tree, voltage regulators, idle logic", at_least=0, default=0.0)
    scale: float = number("factor on all power of the chip, such as 1.15 for a stacked one", above=0, at_most=100, default=1.0)
    limit_w: float = number("board limit; 0 is none", at_least=0, default=0.0)
    source: str = text("where the numbers come from", default="")


Unit = GpuSpec | NpuSpec | CimSpec | NeuromorphicSpec
Tier = SramSpec | DramSpec
Block = Unit | ControlSpec | HostSpec | PeersSpec | SramSpec | DramSpec | LinkSpec

#: kind -> class, for the reader
KINDS: dict[str, type] = {
    "gpu": GpuSpec,
    "npu": NpuSpec,
    "cim": CimSpec,
    "neuromorphic": NeuromorphicSpec,
    "control": ControlSpec,
    "host": HostSpec,
    "peers": PeersSpec,
    "sram": SramSpec,
    "dram": DramSpec,
    "link": LinkSpec,
}


@attrs.frozen(kw_only=True)
class ChipSpec:
    """A chip: named blocks in the order of the file, and what belongs to the chip as a whole."""

    name: str = text("name of the chip", required=True)
    blocks: Mapping[str, Block]
    placement: PlacementSpec = attrs.field(factory=PlacementSpec)
    precision: PrecisionSpec | None = None
    software: SoftwareSpec = attrs.field(factory=SoftwareSpec)
    power: PowerSpec = attrs.field(factory=PowerSpec)
    board: BoardSpec | None = None
    server: ServerSpec | None = None
    facility: FacilitySpec | None = None
    cost: CostSpec | None = None
    process_nm: float = number("process node, the vendor's name for it", at_least=0, default=0.0)
    source: str = text("where the chip is described", required=True)
    remarks: tuple[str, ...] = names("what a reader should know; `show` prints them", default=())

    def of_kind(self, *kinds: type) -> dict[str, Block]:
        """Blocks of the given spec classes, in file order."""
        return {name: block for name, block in self.blocks.items() if isinstance(block, kinds)}
