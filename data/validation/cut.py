"""Cut the tables of this folder out of the full measured tables: `python data/validation/cut.py GPU_MEASURED LLMCOMPASS`.

The two arguments are folders with the full tables, as README.md names them. Half of the families of shapes are kept, whole,
drawn by a hash; rows, their order and their digits stay as they were. A first column `part` says which rows a fit may see.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

from archmodel.holdout import draw, family, is_fit

HERE = Path(__file__).parent
#: of the families, and of the serving runs; the other tables are small
KEPT_SHARE = {"gemm": 0.4, "attention": 0.45, "moe": 0.5, "serving": 0.33}
DEVICES = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")

#: (operation, devices) of the collectives that the fit of `[peers]` did not see, by device
UNSEEN_COLLECTIVES = {
    "l40s": {("all_gather", "8"), ("alltoall", "2"), ("reduce_scatter", "4")},
    "b200_sxm": {("all_gather", "4"), ("reduce_scatter", "8")},
    "": {("all_reduce", "4"), ("all_gather", "8"), ("alltoall", "2"), ("reduce_scatter", "8"), ("all_reduce", "2")},
}

#: faster than the format that they name allows: the library computes in int8 tensor cores, not in bf16
DOUBTFUL = {("h100_sxm", "int8_wo")}

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(name: str, rows: Iterable[Row]) -> None:
    rows = list(rows)
    with (HERE / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{name}: {len(rows):,} rows")


def marked(what: str, rows: Iterable[Row]) -> list[Row]:
    """Rows of the kept families, with their part."""
    share = KEPT_SHARE.get(what, 1.0)
    kept = [row for row in rows if float(row["latency_us"]) > 0 and draw(f"keep:{family(what, row)}") < share]
    return [{"part": "fit" if is_fit(family(what, row)) else "report", **row} for row in kept]


def collectives(rows: Iterable[Row]) -> list[Row]:
    """`part` as the fit of `[peers]` took them; half-precision messages, as in inference."""
    found = []
    for row in rows:
        unseen = UNSEEN_COLLECTIVES.get(row["device"], UNSEEN_COLLECTIVES[""])
        part = "report" if (row["op"], row["num_gpus"]) in unseen else "fit"
        found += [{"part": part, **row}] if row["dtype"] != "int8" else []
    return found


def by_device(name: str, rows: Iterable[Row]) -> None:
    """One file a device, without the column that names it."""
    rows = list(rows)
    for device in dict.fromkeys(row["device"] for row in rows):
        own = (row for row in rows if row["device"] == device)
        write(f"{name}_{device}.csv", ({column: cell for column, cell in row.items() if column != "device"} for row in own))


def main(measured: Path, llmcompass: Path) -> None:
    for device in DEVICES:
        gemms = read(measured / f"gemm_{device}.csv")
        write(f"gemm_{device}.csv", marked("gemm", (row for row in gemms if (device, row["dtype"]) not in DOUBTFUL)))
        for phase in ("context", "generation"):
            write(f"attn_{phase}_{device}.csv", marked("attention", read(measured / f"attn_{phase}_{device}.csv")))
        write(f"moe_{device}.csv", marked("moe", read(measured / f"moe_{device}.csv")))
    by_device("mla", marked("mla", read(measured / "attn_mla.csv")))
    by_device("quantise", marked("quantise", read(measured / "elementwise_quantize.csv")))
    by_device("collectives", collectives(read(measured / "comm_collectives.csv")))
    serving = read(HERE.parents[1] / "tests/anchors/serving.csv")
    write("serving.csv", (row for row in serving if draw("keep:" + ",".join(row.values())) < KEPT_SHARE["serving"]))
    write("llmcompass_operators.csv", read(llmcompass / "operators_a100_mi210.csv"))
    write("llmcompass_gpt3_layer.csv", read(llmcompass / "gpt3_layer_a100x4.csv"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
