"""Write the table of Unicode's general categories for the patterns of tokenizers.

    pip install unicodedata2==16.0.0
    apt-get install unicode-data
    python tools/make_unicode_table.py

The version is that of the regular expressions in PyPI's `tokenizers`, not that of Python: a model
must split a text as in its training, in any Python.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from textwrap import wrap

import unicodedata2  # type: ignore[import-not-found]

VERSION = "16.0.0"
AGES = Path("/usr/share/unicode/DerivedAge.txt")  # Debian's package unicode-data
OLD = ("8.0", "9.0")  # those of the normalizers in `tokenizers`
TARGET = Path(__file__).parents[1] / "runtime/halfbyte/text/tokenizers/unicode_table.py"
HEAD = '''"""Categories of code points, and which are new; made by tools/make_unicode_table.py."""

VERSION = "{version}"

# Runs of code points from U+0000 on: the category, then how many, if more than one.
RUNS = (
{lines}
)
'''
ABSENT = """
# Code points that Unicode {version} had not, as pairs: how many it had, and how many it had not.
ABSENT_{name} = (
{lines}
)
"""


def main() -> None:
    """Write the table."""
    if unicodedata2.unidata_version != VERSION:
        raise SystemExit(f"expected unicodedata2 {VERSION}, found {unicodedata2.unidata_version}")
    categories = (unicodedata2.category(chr(code)) for code in range(0x110000))
    counts = ((name, len(list(group))) for name, group in groupby(categories))
    runs = "".join(name if count == 1 else f"{name}{count}" for name, count in counts)
    lines = "\n".join(f'    "{runs[at : at + 92]}"' for at in range(0, len(runs), 92))
    text = HEAD.format(version=VERSION, lines=lines)
    known = [(0, range(0))] + [
        (float(age), range(int(first, 16), int(last or first, 16) + 1))
        for first, last, age in re.findall(
            r"^(\w+)(?:\.\.(\w+))? *; ([\d.]+)", AGES.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    for version in OLD:
        old = {code for age, codes in known if age <= float(version) for code in codes}
        runs = " ".join(
            str(len(list(group))) for _, group in groupby(c in old for c in range(0x110000))
        )
        lines = "\n".join(f'    "{line}"' for line in wrap(runs, 92, drop_whitespace=False))
        text += ABSENT.format(version=version, name=version.replace(".", "_"), lines=lines)
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
