"""CSV tables: every way of writing the same file reads alike, and every broken file says what is wrong and where."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from archmodel.errors import ArchmodelError, TableError
from archmodel.operation_table import read_operations
from archmodel.table_file import Problems, Rule, numbers, read_table_file

PLAIN = "name,m,n,k,dtype\nqkv,16,512,256,bf16\nout,1,256,4096,int8\nup,300,64,64,fp8\n"
LINES = PLAIN.splitlines()

#: the same table as different programs write it
WAYS = {
    "trailing comma": "".join(line + ",\n" for line in LINES),
    "trailing commas of a spreadsheet": "".join(line + ",,,\n" for line in LINES) + ",,,,,,,\n",
    "trailing comma in the header only": "\n".join([LINES[0] + ",", *LINES[1:], ""]),
    "trailing comma in the rows only": "\n".join([LINES[0], *(line + "," for line in LINES[1:]), ""]),
    "no final newline": PLAIN.rstrip("\n"),
    "trailing comma, no final newline": "".join(line + ",\n" for line in LINES).rstrip("\n"),
    "blank lines": "\n\n" + PLAIN.replace("\n", "\n\n") + "  \n\n",
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "CR": PLAIN.replace("\n", "\r"),
    "BOM": "\ufeff" + PLAIN,
    "BOM, CRLF, blank lines, trailing comma": "\ufeff" + "".join(line + ",\r\n\r\n" for line in LINES),
    "quotes": "".join(",".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in LINES),
    "spaces": PLAIN.replace(",", " , "),
    "comments": "# measured yesterday, \"with care\n\n# twice\r\n" + PLAIN,
    "capital titles": PLAIN.replace("m,n,k,dtype", "M,N,K,Dtype"),
}  # fmt: skip


def write(folder, text, name="operations.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("way", WAYS)
def test_the_same_table_reads_alike(tmp_path, way):
    table = read_operations(write(tmp_path, WAYS[way], "my operations é.csv"))
    assert [title.lower() for title in table.table.header] == ["name", "m", "n", "k", "dtype"]
    assert [[cell.strip() for cell in row] for row in table.table.rows] == [line.split(",") for line in LINES[1:]]
    assert [table.size[name].tolist() for name in "mnk"] == [[16, 1, 300], [512, 256, 64], [256, 4096, 64]]
    assert [table.dtypes[code] for code in table.dtype] == [("bf16",), ("int8",), ("fp8",)]


def test_line_numbers_are_those_of_the_file(tmp_path):
    text = '# comment\n\nname,m,n,k,dtype\n\n"two\nlines",1,1,1,bf16\n\nlast,1,1,1,bf16'
    assert read_operations(write(tmp_path, text)).table.lines == (5, 8)


def test_what_the_csv_module_writes_comes_back(tmp_path):
    rng = np.random.default_rng(4)
    letters = list("ab 7,\"';#\n\t.é")
    rows = [["x" + "".join(rng.choice(letters, rng.integers(0, 9))) for _ in range(4)] for _ in range(200)]
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["a", "b", "c", "d"], *rows])
    problems = Problems("t")
    assert list(read_table_file(write(tmp_path, out.getvalue()), problems).rows) == rows
    problems.check()


def test_numbers_keep_a_rule_or_are_reported(tmp_path):
    cells = ["1", " 2 ", "3.0", "4e2", "0", "", "x", "nan", "inf", "-1", "1_0", "0x10", "1,5", "2"]
    table = read_table_file(write(tmp_path, "v\n" + "".join(f'"{cell}"\n' for cell in cells)), Problems("t"))
    assert "" not in table.texts("v")  # a row of one empty cell is a blank line
    problems = Problems("t")
    values = numbers(table, "v", Rule("must be above 0 and finite", lambda v: (v > 0) & (v < 1e9)), problems)
    good = [1.0, 2.0, 3.0, 400.0, 2.0]
    assert values[np.isfinite(values)].tolist() == good
    with pytest.raises(TableError) as error:
        problems.check()
    assert len(str(error.value).splitlines()) == 1 + len(cells) - 1 - len(good)


GOOD = "1,1,1,bf16"
HEAD = "m,n,k,dtype\n"
ATTENTION = "batch,seq_q,kv_len,heads,kv_heads,head_dim,window,attn_dtype,kv_dtype\n"

#: content, and what the message must hold
BROKEN = {
    "empty file": ("", ["is empty"]),
    "only blank lines": ("\n \r\n\n", ["is empty"]),
    "only comments": ("# one\n# two\n", ["is empty"]),
    "header without rows": (HEAD, ["line 1: a header without rows"]),
    "no header": ("64,64,64,bf16\n", ["line 1: the first line must name the columns"]),
    "semicolons": ("m;n;k;dtype\n1;1;1;bf16\n", ["separated by commas"]),
    "semicolons in the rows": (HEAD + "1;1;1;bf16\n", ["line 2: must have 4 fields", "it has 1; fields are separated by"]),
    "tabs": (HEAD.replace(",", "\t") + "1\t1\t1\tbf16\n", ["separated by commas"]),
    "another table": ("num_tokens,hidden,experts\n1,2,3\n", ["m, n, k, dtype", "it names num_tokens, hidden, experts"]),
    "misspelt columns": ("m,n,kk,dtpe\n" + GOOD, ["missing column k, is kk meant", "missing column dtype, is dtpe meant"]),
    "missing column": ("m,n,dtype\n1,1,bf16\n", ["line 1: missing column k"]),
    "no window": (ATTENTION.replace("window", "windw") + "1,1,8,4,4,64,0,bf16,bf16\n", ["missing column window, is windw"]),
    "duplicate column": ("m,n,k,dtype,m\n1,1,1,bf16,1\n", ["column m: is there 2 times"]),
    "duplicate column in capitals": ("m,n,k,dtype,M\n1,1,1,bf16,1\n", ["column m: is there 2 times"]),
    "zero": (HEAD + "0,1,1,bf16\n", ["line 2, column m: 0, must be a whole number from 1 to 1,000,000,000"]),
    "negative": (HEAD + "1,-5,1,bf16\n", ["line 2, column n: -5"]),
    "NaN": (HEAD + "1,1,nan,bf16\n", ["line 2, column k: nan"]),
    "infinite": (HEAD + "inf,1,1,bf16\n", ["line 2, column m: inf"]),
    "huge": (HEAD + "1000000001,1,1,bf16\n", ["line 2, column m: 1000000001"]),
    "beyond floating point": (HEAD + f"{'9' * 400},1,1,bf16\n", ["line 2, column m: 999999"]),
    "huge together": (HEAD + "1e9,1e9,1e9,bf16\n", ["line 2, column m, n, k", "1,000,000,000,000,000,000"]),
    "not whole": (HEAD + "1.5,1,1,bf16\n", ["line 2, column m: 1.5"]),
    "a word": (HEAD + "one,1,1,bf16\n", ["line 2, column m: one"]),
    "empty cell": (HEAD + ",1,1,bf16\n", ["line 2, column m: empty"]),
    "thousands": (HEAD + '"1,024",1,1,bf16\n', ["line 2, column m: 1,024"]),
    "a row too short": (HEAD + f"1,1,1\n{GOOD}\n", ["line 2: must have 4 fields, as the header; it has 3"]),
    "a row too long": (HEAD + f"{GOOD},7\n", ["line 2: must have 4 fields, as the header; it has 5"]),
    "truncated": (HEAD + f"{GOOD}\n1,1", ["line 3", "it has 2; is the file truncated?"]),
    "truncated in quotes": (HEAD + '1,1,1,"bf16\n' + GOOD, ["line 2: a quoted field that begins here does not end"]),
    "text after a quote": (HEAD + '1,1,1,"bf"16\n', ["line 2: is not CSV"]),
    "unknown format": (HEAD + "1,1,1,bfloat61\n", ["line 2, column dtype: bfloat61, unknown number format", "bfloat16?"]),
    "unlike any format": (HEAD + "1,1,1,posit\n", ["posit, unknown number format; known are", "nvfp4", "int4_wo"]),
    "no format": (HEAD + "1,1,1,\n", ["line 2", "dtype: empty"]),
    "latency zero": ("m,n,k,dtype,latency_us\n1,1,1,bf16,0\n", ["line 2, column latency_us: 0, must be a number above 0"]),
    "latency negative": ("m,n,k,dtype,latency_us\n1,1,1,bf16,-1\n", ["line 2, column latency_us: -1"]),
    "latency of words": ("m,n,k,dtype,latency_us\n1,1,1,bf16,fast\n", ["line 2, column latency_us: fast"]),
    "heads do not divide": (ATTENTION + "1,1,8,6,4,64,0,bf16,bf16\n", ["line 2, column kv_heads: 4, must divide heads"]),
    "fewer keys than queries": (ATTENTION + "1,9,8,4,4,64,0,bf16,bf16\n", ["line 2, column kv_len: 8, must be at least seq_q"]),
    "negative window": (ATTENTION + "1,1,8,4,4,64,-1,bf16,bf16\n", ["line 2, column window: -1"]),
    "unknown cache format": (ATTENTION + "1,1,8,4,4,64,0,bf16,fp9\n", ["line 2, column kv_dtype: fp9", "did you mean fp8?"]),
    "UTF-16": ("\ufeffm,n,k,dtype\n".encode("utf-16"), ["is not UTF-8 text"]),
    "binary": (bytes(range(256)), ["is not UTF-8 text"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_says_what_and_where(tmp_path, case):
    content, fragments = BROKEN[case]
    path = write(tmp_path, content)
    with pytest.raises(TableError) as error:
        read_operations(path)
    assert str(error.value).startswith(f"{path}: ")
    for fragment in fragments:
        assert fragment in str(error.value)


def test_a_missing_file_or_a_folder_is_an_error_of_the_user(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ArchmodelError, match="cannot be read"):
            read_operations(path)


def test_all_problems_come_at_once_by_line(tmp_path):
    text = HEAD + "1,1,1,bf61\n1,1\n0,2.5,nan,bf16\n" + GOOD + "\n-1,1,1,bf16"
    with pytest.raises(TableError) as error:
        read_operations(write(tmp_path, text))
    first, *rest = str(error.value).splitlines()
    assert first.endswith("operations.csv: 6 problems")
    places = [line.strip().partition(":")[0] for line in rest]
    assert places == [
        "line 2, column dtype", "line 3", "line 4, column m", "line 4, column n", "line 4, column k", "line 6, column m"
    ]  # fmt: skip


def test_many_problems_are_counted_not_listed(tmp_path):
    with pytest.raises(TableError) as error:
        read_operations(write(tmp_path, HEAD + "0,0,1,bf16\n" * 500))
    lines = str(error.value).splitlines()
    assert len(lines) == 22
    assert lines[0].endswith("1000 problems")
    assert lines[-1] == "  and 980 more"
