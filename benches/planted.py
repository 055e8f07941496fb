"""Build the kernels with one of them slowed down, to see that the suite finds it.

    python -m benches.planted matmul_int8_q4_0_r16 --percent 10 -o build/bench/planted
    HALFBYTE_KERNELS=build/bench/planted/_kernels.so make bench ARGS="--compare OLD.json"

After each chunk of its work the kernel waits for so many percent of the time that it took. Only a
copy of the sources is changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benches.prepare import ROOT

RUN = "table->run(instruction->kernel, "
SLOWED = """
#define KERNEL(name, units, grain, cost, fields) HB_PLANTED_##name,
enum {{
#include "kernels.h"
}};
#undef KERNEL

static void run_planted(const hb_table* table, const hb_instruction* instruction, int64_t begin,
                        int64_t end) {{
  uint64_t start = hb_ticks();
  table->run(instruction->kernel, instruction->slot, begin, end);
  if (instruction->kernel == HB_PLANTED_{kernel}) {{
    uint64_t until = hb_ticks() + (hb_ticks() - start) * {percent} / 100;
    while (hb_ticks() < until) {{
      pause_briefly();
    }}
  }}
}}

static void run_units("""


def plant(text: str, kernel: str, percent: int) -> str:
    """run.c with the kernel slowed down."""
    if text.count(RUN) != 1 or "static void run_units(" not in text:
        raise SystemExit(f"run.c: expected run_units, with the only call of {RUN}")
    calls = text.replace(f"{RUN}instruction->slot, ", "run_planted(table, instruction, ")
    return calls.replace("static void run_units(", SLOWED.format(kernel=kernel, percent=percent), 1)


def build(kernel: str, percent: int, target: Path) -> Path:
    """The library, below the folder `target`."""
    source = target / "kernels"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "runtime/kernels", source)
    run = source / "run.c"
    run.write_text(plant(run.read_text(encoding="utf-8"), kernel, percent), encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for command in (
        ("cmake", "-G", "Ninja", "-S", source, "-B", target),
        ("cmake", "--build", target),
    ):
        subprocess.run(command, env=os.environ | {"PATH": path}, check=True, stdout=sys.stderr)
    [library] = target.glob("_kernels.*")
    return library


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernel", help="a name of runtime/kernels/kernels.h, with its type")
    parser.add_argument("--percent", type=int, default=10, help="(default 10)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/bench/planted")
    options = parser.parse_args()
    print(build(options.kernel, options.percent, options.output))


if __name__ == "__main__":
    main()
