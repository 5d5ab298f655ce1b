"""A slow, obvious DRAM channel: every command is checked against every timing rule, one bank at a time.

Open page, first come first served in each bank, the earliest legal command of any bank next; reads and writes wait in
separate queues and the bus turns after a batch. Times are cycles of the command clock. It shares only the numbers with
`archmodel.kernels.dram`.
"""

from collections import deque

import attrs
import numpy as np

from archmodel.kernels.dram import DramTiming

NEVER = -(10**9)


@attrs.define
class Request:
    bank: int
    row: int
    write: bool
    bursts: int
    arrival: float = 0.0
    done: float = 0.0


class Device:
    """State and history of one channel: `earliest` says when a command becomes legal, `issue` records it."""

    def __init__(self, t: DramTiming) -> None:
        self.place = [{"bank": bank, "group": bank % int(t.bank_groups), "channel": 0} for bank in range(int(t.banks))]
        self.open_row: list[int | None] = [None] * int(t.banks)
        self.activates: deque[float] = deque([NEVER] * 4, maxlen=4)
        self.faw = t.faw
        self.last: dict[tuple[str, str, int], float] = {}
        # (earlier command, level at which it is remembered, cycles), by the later command
        write_data = t.cwl + t.burst
        self.rules: dict[str, list[tuple[str, str, float]]] = {
            "ACT": [("ACT", "channel", t.rrd), ("ACT", "bank", t.rc), ("PRE", "bank", t.rp),
                    ("REFab", "channel", t.rfc), ("REFpb", "bank", t.rfc_bank)],
            "PRE": [("ACT", "bank", t.ras), ("RD", "bank", t.rtp), ("WR", "bank", write_data + t.wr)],
            "RD": [("ACT", "bank", t.rcd), ("RD", "channel", t.burst), ("RD", "group", t.ccd_l),
                   ("WR", "channel", write_data + t.wtr)],
            "WR": [("ACT", "bank", t.rcd), ("WR", "channel", t.burst), ("WR", "group", t.ccd_l),
                   ("RD", "channel", t.cl + t.burst + t.bus_gap - t.cwl)],
            "REFab": [("PRE", "channel", t.rp), ("REFab", "channel", t.rfc)],
            "REFpb": [("PRE", "bank", t.rp), ("REFpb", "bank", t.rfc_bank)],
        }  # fmt: skip

    def earliest(self, command: str, bank: int) -> float:
        times = [self.last.get((earlier, level, self.place[bank][level]), NEVER) + cycles
                 for earlier, level, cycles in self.rules[command]]  # fmt: skip
        if command == "ACT":
            times.append(self.activates[0] + self.faw)
        return max(times)

    def ready(self, command: str, bank: int, now: float) -> bool:
        return now >= self.earliest(command, bank)

    def issue(self, command: str, bank: int, now: float, row: int = 0) -> None:
        assert self.ready(command, bank, now), (command, bank, now)
        is_open = self.open_row[bank] is not None
        assert is_open == (command in ("RD", "WR", "PRE")) or command == "REFab", (command, bank)
        for level in ("bank", "group", "channel"):
            self.last[(command, level, self.place[bank][level])] = now
        if command == "ACT":
            self.activates.append(now)
            self.open_row[bank] = row
        elif command == "PRE":
            self.open_row[bank] = None


class Controller:
    """Serves requests in order of arrival within a bank, `queue` of them in view at a time."""

    def __init__(self, t: DramTiming, requests: list[Request], *, write_share: float = 0.0) -> None:
        self.t = t
        self.device = Device(t)
        self.waiting = deque(requests)
        self.view: list[Request] = []
        self.left: dict[int, int] = {}
        self.now = 0.0
        self.writing = False
        self.since_turn = 0
        self.quota = {True: t.write_batch, False: t.write_batch * (1 - write_share) / write_share if write_share else np.inf}
        self.refresh_due = t.refi if t.per_bank == 0 else t.refi / t.banks
        self.refresh_bank = 0
        self.refreshing: set[int] = set()

    def run(self) -> float:
        """Cycles until the last data have moved."""
        end = 0.0
        while self.waiting or self.view:
            self._admit()
            end = max(end, self._step())
        return end

    def _admit(self) -> None:
        while self.waiting and len(self.view) < self.t.queue and (self.waiting[0].arrival <= self.now or not self.view):
            request = self.waiting.popleft()
            self.now = max(self.now, request.arrival)
            self.left[id(request)] = request.bursts
            self.view.append(request)

    def _heads(self) -> tuple[dict[int, Request], set[int]]:
        """Oldest request of each bank in the bus direction, or else of the other one (its row may be prepared).

        The bus turns when the batch is full and what it began is finished, or when nothing is left in its direction but
        what waits for a bank in refresh.
        """
        other = any(r.write != self.writing for r in self.view)
        full = other and self.since_turn >= self.quota[self.writing]
        current = {id(r) for r in self.view if r.write == self.writing and (not full or self.left[id(r)] < r.bursts)}
        if other:
            current -= {id(r) for r in self.view if self._in_refresh(r.bank)}
        if other and not current:
            self.writing = not self.writing
            self.since_turn = 0
            current = {id(r) for r in self.view if r.write == self.writing}
        heads: dict[int, Request] = {}
        for request in self.view:
            head = heads.get(request.bank)
            if head is None or (id(head) not in current and id(request) in current):
                heads[request.bank] = request
        return heads, current

    def _in_refresh(self, bank: int) -> bool:
        return bank in self.refreshing or self.now < self.device.last.get(("REFpb", "bank", bank), NEVER) + self.t.rfc_bank

    def _step(self) -> float:
        if self.now >= self.refresh_due:
            self._refresh()
        choices = []
        for bank in self.refreshing:
            command = "REFpb" if self.device.open_row[bank] is None else "PRE"
            choices.append((max(self.now, self.device.earliest(command, bank)), 0, 0, bank, command, None))
        heads, current = self._heads()
        age = {bank: self.view.index(head) for bank, head in heads.items()}
        for bank, head in heads.items():
            if bank in self.refreshing:
                continue
            row = self.device.open_row[bank]
            command = ("WR" if head.write else "RD") if row == head.row else "ACT" if row is None else "PRE"
            if command in ("RD", "WR") and id(head) not in current:
                continue
            order = 1 if command in ("RD", "WR") else 2
            choices.append((max(self.now, self.device.earliest(command, bank)), order, age[bank], bank, command, head))
        when, _, _, bank, command, head = min(choices, key=lambda c: c[:3])
        if self.waiting and len(self.view) < self.t.queue and self.waiting[0].arrival < when:
            self.now = self.waiting[0].arrival
            return 0.0
        if when >= self.refresh_due:
            self.now = self.refresh_due
            return 0.0
        return self._issue(when, bank, command, head)

    def _issue(self, when: float, bank: int, command: str, head: Request | None) -> float:
        self.now = when
        self.device.issue(command, bank, when, head.row if head else 0)
        if command == "REFpb":
            self.refreshing.discard(bank)
        if command not in ("RD", "WR"):
            return 0.0
        assert head is not None
        self.since_turn += 1
        self.left[id(head)] -= 1
        head.done = when + (self.t.cwl if head.write else self.t.cl) + self.t.burst
        if self.left[id(head)] == 0:
            self.view.remove(head)
        return head.done

    def _refresh(self) -> None:
        if self.t.per_bank:
            self.refreshing.add(self.refresh_bank)
            self.refresh_bank = (self.refresh_bank + 1) % int(self.t.banks)
            self.refresh_due += self.t.refi / self.t.banks
            return
        for bank, row in enumerate(self.device.open_row):
            if row is not None:
                self.now = max(self.now, self.device.earliest("PRE", bank))
                self.device.issue("PRE", bank, self.now)
        self.now = max(self.now, self.device.earliest("REFab", 0))
        self.device.issue("REFab", 0, self.now)
        self.refresh_due += self.t.refi


def byte_per_cycle(t: DramTiming, requests: list[Request], granule_byte: float, *, write_share: float = 0.0) -> float:
    """Useful bytes per command clock in the steady state: whole intervals between all-bank refreshes, the first left out,
    or else the middle three fifths of the run."""
    end = Controller(t, requests, write_share=write_share).run()
    done = np.array([request.done for request in requests])
    first, last = (end * 0.2, end * 0.8) if t.per_bank else (t.refi, t.refi * (end // t.refi))
    assert last > first, "the run must span two refresh intervals"
    return float(np.sum((done > first) & (done <= last))) * granule_byte / (last - first)


def granules(
    t: DramTiming, granule_byte: float, count: int, *, row_hit: float = 0.0, write_share: float = 0.0, seed: int = 7
) -> list[Request]:
    """Granules in random banks, each in the row that its bank used last with probability `row_hit`."""
    assert granule_byte <= t.page_byte, "a granule of the oracle lies in one row"
    rng = np.random.default_rng(seed)
    bursts = int(np.ceil(granule_byte / t.burst_byte))
    rows = [0] * int(t.banks)
    requests = []
    for _ in range(count):
        bank = int(rng.integers(t.banks))
        rows[bank] += rng.random() >= row_hit
        requests.append(Request(bank, rows[bank], bool(rng.random() < write_share), bursts))
    return requests


def stream(t: DramTiming, rows: int) -> list[Request]:
    """A sequential read: consecutive bursts spread over the banks in turn, `rows` rows of every bank."""
    per_row = int(t.page_byte // t.burst_byte)
    return [Request(bank, row, False, 1) for row in range(rows) for _ in range(per_row) for bank in range(int(t.banks))]
