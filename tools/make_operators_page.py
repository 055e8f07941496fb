"""Write docs/operators.md: every ONNX operator, its versions, its file, and whether it has kernels.

python tools/make_operators_page.py
"""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path

from halfbyte.onnx.fusion.rewriter import MICROSOFT
from halfbyte.onnx.fusion.spelled_out import OPERATORS as SPELLED_OUT
from halfbyte.onnx.lowering import rule_of
from halfbyte.onnx.reference.registry import operators, versions

TARGET = Path(__file__).parents[1] / "docs/operators.md"
PACKAGE = "halfbyte.onnx.reference."
DOMAINS = {
    "": "ONNX",
    "ai.onnx.ml": "ONNX: machine learning",
    "ai.onnx.preview": "ONNX: preview",
    "ai.onnx.preview.training": "ONNX: training",
    "com.microsoft": "ONNX Runtime",
    "ai.halfbyte": "halfbyte",
}
ALWAYS, SOMETIMES, NEVER = "always", "where they fit", "no"
HEAD = """# ONNX operators

<!-- Written by tools/make_operators_page.py -->

halfbyte defines {total} operators. Each has a definition in NumPy, in a file of
`runtime/halfbyte/onnx/reference/`, and {lowered} of them also have a rule in
`runtime/halfbyte/onnx/lowering/`, which runs them on kernels:

- **always** ({always}): the rule takes every node, or needs no kernel;
- **where they fit** ({sometimes}): the rule takes the types, shapes and attributes that its kernels
  have, mostly float32 and 8-bit integers; for others the definition runs inside the program;
- **no** ({never}): the definition runs. Nodes whose inputs are all constants are computed once.

*Versions* are those of the operator set from which on a definition holds; later ones that change
nothing are not listed.
"""
TABLE = """
## {title}

{domain}

| operator | versions | definition | kernels |
|---|---|---|---|
{rows}
"""


def kernels(domain: str, name: str) -> str:
    """Whether kernels run an operator: a rule that may decline a node can return None.

    Others become nodes that have kernels.
    """
    rule = rule_of(domain, name)
    if domain == MICROSOFT and name in SPELLED_OUT:
        return SOMETIMES
    if rule is None:
        return NEVER
    returned = inspect.signature(rule).return_annotation
    return SOMETIMES if str(returned).endswith("| None") else ALWAYS


def file_of(domain: str, name: str) -> str:
    """The file of an operator's newest definition, in the folder of definitions."""
    module = versions(domain, name)[0].meaning.__module__
    return module.removeprefix(PACKAGE).replace(".", "/") + ".py"


def row(domain: str, name: str) -> str:
    """A line of the table."""
    since = ", ".join(str(d.since) for d in reversed(versions(domain, name)))
    return f"| {name} | {since} | `{file_of(domain, name)}` | {kernels(domain, name)} |"


def page() -> str:
    """The whole page."""
    known = operators()
    counts = Counter(kernels(*operator) for operator in known)
    text = HEAD.format(
        total=len(known), lowered=len(known) - counts[NEVER], always=counts[ALWAYS],
        sometimes=counts[SOMETIMES], never=counts[NEVER],
    )  # fmt: skip
    for domain, title in DOMAINS.items():
        rows = "\n".join(row(*operator) for operator in known if operator[0] == domain)
        where = f"Domain `{domain}`." if domain else "The default domain, `ai.onnx`."
        text += TABLE.format(title=title, domain=where, rows=rows)
    return text


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
