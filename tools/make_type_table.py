"""Write the table of element types that ONNX's operators accept.

    python tools/make_type_table.py

Every version of an operator is listed with the types of all versions, since newer ones only add
types. Which inputs share a type differs between versions.
"""

from __future__ import annotations

import string
from pathlib import Path

import onnx
from onnx import TensorProto, defs

TARGET = Path(__file__).parents[1] / "runtime/halfbyte/onnx/reference/type_table.py"
HEAD = '''"""Element types of the inputs and outputs of ONNX's operators.

Made by tools/make_type_table.py with onnx {version}. The entry of a version has a word for each
input: a letter, which inputs of the same type share, and the number of a set of types. "-" is an
input that may be something else than a tensor; "*" marks a variadic input. After ">" are the
outputs: the letter of the inputs whose type they have, the number of their type, or "-"; "*" as
before.
"""

# Numbers of ONNX's element types
SETS = (
{sets}
)  # fmt: skip
# By operator: pairs of the first version and its entry, the newest first
INPUTS: dict[str, tuple[tuple[int, str], ...]] = {{
{lines}
}}
'''
Variadic = defs.OpSchema.FormalParameterOption.Variadic


def numbers(parameter: defs.OpSchema.FormalParameter) -> frozenset[int]:
    """Element types of a tensor; empty for parameters that may be something else."""
    if not all(name.startswith("tensor(") for name in parameter.types):
        return frozenset()
    return frozenset(TensorProto.DataType.Value(name[7:-1].upper()) for name in parameter.types)


def entry(
    schema: defs.OpSchema, taken: list[frozenset[int]], sets: dict[frozenset[int], int]
) -> str:
    """The entry of a version: its inputs and outputs."""
    letters: dict[str, str] = {}
    entries = []
    for parameter, types in zip(schema.inputs, taken, strict=False):
        if not types:
            entries.append("-" + "*" * (parameter.option == Variadic))
            continue
        # each of several inputs that may differ has its own type
        key = parameter.type_str if parameter.is_homogeneous else parameter.name + "*"
        letter = letters.setdefault(key, string.ascii_letters[len(letters)])
        many = "*" if parameter.option == Variadic and parameter.is_homogeneous else ""
        entries.append(f"{letter}{sets.setdefault(types, len(sets))}{many}")
    entries.append(">")
    for parameter in schema.outputs:
        types = numbers(parameter)
        known = str(*types) if len(types) == 1 else "-"
        many = "*" if parameter.option == Variadic else ""
        entries.append((letters.get(parameter.type_str, known) if types else "-") + many)
    return " ".join(entries)


def main() -> None:
    """Write the table."""
    operators: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            operators.setdefault(schema.name, []).append(schema)
    sets: dict[frozenset[int], int] = {}
    lines = []
    for name, schemas in sorted(operators.items()):
        schemas.sort(key=lambda schema: schema.since_version)
        count = max(len(schema.inputs) for schema in schemas)
        every = [[numbers(s.inputs[i]) for s in schemas if i < len(s.inputs)] for i in range(count)]
        taken = [frozenset().union(*types) if all(types) else frozenset() for types in every]
        versions: list[tuple[int, str]] = []
        for schema in schemas:
            spelled = entry(schema, taken, sets)
            if not versions or versions[-1][1] != spelled:
                versions.append((schema.since_version, spelled))
        rows = [f'({since}, "{spelled}")' for since, spelled in versions[::-1]]
        lines += [f'    "{name}": (', *(f"        {row}," for row in rows), "    ),"]
    rows = [f'    "{" ".join(map(str, sorted(types)))}",' for types in sets]
    text = HEAD.format(version=onnx.__version__, sets="\n".join(rows), lines="\n".join(lines))
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
