"""Fill the generated parts of README.md from what the tool prints now.

    python benchmarks/update_readme.py [--check]

`--check` changes nothing and fails where the tables would differ (the speed, which no two runs share, is left alone).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COLUMNS = "118"


def printed(*arguments: str) -> str:
    """Standard output of a command of this Python, without trailing spaces."""
    run = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": COLUMNS},
    )
    return "\n".join(line.rstrip() for line in run.stdout.splitlines()).strip()


def evaluated() -> str:
    text = printed("-m", "archmodel", "eval", "chips/hetero_v1.toml", "workloads/llm_100b.toml", "--quiet")
    return f"```text\n$ python -m archmodel eval chips/hetero_v1.toml workloads/llm_100b.toml\n{text}\n```"


def split() -> str:
    """The answer and the strategies; the tables behind them are left to the reader's own run."""
    text = printed("-m", "archmodel", "split", "chips/hetero_v1.toml", "workloads/llm_100b.toml", "--quiet")
    answer = text.partition("\n\nWhere the gain of the best split")[0]
    return f"```text\n$ python -m archmodel split chips/hetero_v1.toml workloads/llm_100b.toml\n{answer}\n```"


def accuracy() -> str:
    return printed("benchmarks/accuracy.py")


def speed() -> str:
    return f"```text\n{printed('benchmarks/evaluate_speed.py')}\n{printed('benchmarks/predict_rate.py')}\n```"


def filled(text: str, name: str, content: str) -> str:
    """`text` with the generated part `name` replaced."""
    pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- /generated -->)"
    return re.sub(pattern, lambda part: f"{part[1]}{content}\n{part[2]}", text, flags=re.DOTALL)


def main() -> int:
    check = "--check" in sys.argv[1:]
    before = README.read_text(encoding="utf-8")
    after = filled(filled(before, "eval", evaluated()), "split", split())
    after = filled(after, "accuracy", accuracy())
    if check:
        print(
            "README.md is up to date" if after == before else "README.md is not what the tool prints: run this without --check"
        )
        return int(after != before)
    README.write_text(filled(after, "speed", speed()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
