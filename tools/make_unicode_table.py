"""Write the table of Unicode's general categories that tokenizers' patterns are made from.

    pip install unicodedata2==16.0.0
    python tools/make_unicode_table.py

The version is that of the regular expressions in PyPI's `tokenizers`, not of the Python that runs:
a model must split a text as in its training, whatever Python it meets.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from textwrap import wrap

import unicodedata2  # type: ignore[import-not-found]

VERSION = "16.0.0"
TARGET = Path(__file__).parents[1] / "runtime/halfbyte/tokenizers/unicode_table.py"
HEAD = '''"""General categories of all code points; made by tools/make_unicode_table.py."""

VERSION = "{version}"

# Runs of code points from U+0000 on: the category, then how many.
RUNS = (
{lines}
)
'''


def main() -> None:
    """Write the table."""
    if unicodedata2.unidata_version != VERSION:
        raise SystemExit(f"expected unicodedata2 {VERSION}, found {unicodedata2.unidata_version}")
    categories = (unicodedata2.category(chr(code)) for code in range(0x110000))
    runs = " ".join(f"{name}{len(list(group))}" for name, group in groupby(categories))
    lines = "\n".join(f'    "{line}"' for line in wrap(runs, 92, drop_whitespace=False))
    TARGET.write_text(HEAD.format(version=VERSION, lines=lines), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
