"""Samples from a text: its lines, as tokens for an encoder.

Encoders also read titles and questions of a few tokens. There the special tokens, and the point
at the end, are a large part of the mean that becomes the vector; in long lines they are few. So
most lines are shortened, to some of their first tokens and the last one. (MiniLM, int4: the lowest
cosine of 32 sentences, that of "No.", is 0.985 in place of 0.968.)

Lines of as many tokens are one sample, so that nothing is padded: a row of padding is unlike those
of a text, and would count as much.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.calibration.texts import MIN_TOKENS, read_text, spread
from halfbyte.text.tokenizers import load_tokenizer

Tokens = npt.NDArray[np.int32]

LENGTH = 128  # tokens of a row, at most
MAX_TOKENS = 1 << 15  # of all rows: short ones, which count as much as long ones, need many
_SIZES = (2, 3, 4, 5, 7, 10, 15, LENGTH)  # tokens that a line is shortened to
_TOGETHER = 512  # tokens of a sample, at most
# What inputs of an encoder hold, by their names: of each token its id, 1, 0 or its position
_CONTENTS = {
    "input_ids": "ids", "attention_mask": "ones", "input_mask": "ones", "token_type_ids": "zeros",
    "segment_ids": "zeros", "position_ids": "positions",
}  # fmt: skip


def read_texts(
    path: Path,
    tokenizer: str | os.PathLike[str] | None,
    model: Path,
    shapes: Mapping[str, Sequence[int | str]],
) -> list[dict[str, Tokens]]:
    """The lines of a text as samples, of inputs with these shapes; at most about 32,768 tokens.

    Parameters
    ----------
    path : Path
        A text in UTF-8; longer lines than `LENGTH` tokens are cut into several.
    tokenizer : path, optional
        By default the tokenizer.json beside the model, or in the folder above.
    model : Path
    shapes : mapping
        Sizes of the inputs by name; open ones are text.

    Raises
    ------
    HalfbyteError
        The file is no text, or of fewer than `MIN_TOKENS` tokens; there is no tokenizer; an input
        is none of an encoder's.
    """
    _check_inputs(path, shapes)
    text = read_text(path)
    reader = load_tokenizer(_tokenizer_of(model, path) if tokenizer is None else tokenizer)
    lines = [line for line in text.splitlines() if line.strip()]
    encoded = reader.encode_batch(lines, add_special_tokens=False)
    count = sum(map(len, encoded))
    if count < MIN_TOKENS:
        raise HalfbyteError(
            f"{path}: expected a text of at least {MIN_TOKENS} tokens to calibrate with, found "
            f"{count}"
        )
    batch, length = shapes["input_ids"]
    fixed = length if isinstance(length, int) else 0
    rows = spread(_rows(encoded, reader.before, reader.after, fixed or LENGTH), MAX_TOKENS)
    alone = isinstance(batch, int) or bool(fixed)
    return [_sample(part, shapes, fixed) for part in _batches(rows, alone=alone)]


def _check_inputs(path: Path, shapes: Mapping[str, Sequence[int | str]]) -> None:
    for name, shape in shapes.items():
        is_batch = len(shape) == 2 and (isinstance(shape[0], str) or shape[0] == 1)
        if name not in _CONTENTS or not is_batch:
            raise HalfbyteError(
                f"{path}: input {name!r} {[*shape]}: a text is for encoders with inputs "
                f"[batch, tokens] named {', '.join(_CONTENTS)}: expected a .npz file or a folder"
            )
    if "input_ids" not in shapes:
        raise HalfbyteError(f"{path}: expected an input 'input_ids', found {[*shapes]}")


def _tokenizer_of(model: Path, text: Path) -> Path:
    for folder in (model.parent, model.parent.parent):
        if (folder / "tokenizer.json").is_file():
            return folder
    raise HalfbyteError(
        f"{text}: expected the model's tokenizer.json beside {model}, or --tokenizer FILE"
    )


def _rows(
    encoded: Sequence[Sequence[int]], before: list[int], after: list[int], size: int
) -> list[Tokens]:
    """Lines as rows with the special tokens around them; of a short text in up to eight ways."""
    step = max(1, size - len(before) - len(after))
    starts = np.random.default_rng(0).integers(0, len(_SIZES), len(encoded))
    whole, rows = [False] * len(encoded), list[Tokens]()
    for turn in range(len(_SIZES)):
        for number, (ids, start) in enumerate(zip(encoded, starts, strict=True)):
            kept = _SIZES[(start + turn) % len(_SIZES)]
            if kept < min(len(ids), step):
                parts = [[*ids[: kept - 1], ids[-1]]]
            elif whole[number]:
                continue
            else:
                parts = [[*ids[first : first + step]] for first in range(0, len(ids), step)]
                whole[number] = True
            rows += [np.array([*before, *part, *after], np.int32) for part in parts]
        if sum(map(len, rows)) > MAX_TOKENS:
            break
    return rows


def _batches(rows: Sequence[Tokens], *, alone: bool) -> list[list[Tokens]]:
    """Rows of the same length together, in an order that mixes lengths."""
    batches: list[list[Tokens]] = []
    filled: dict[int, list[Tokens]] = {}
    for row in rows:
        batch = filled.get(len(row))
        if batch is None or alone or (len(batch) + 1) * len(row) > _TOGETHER:
            batch = filled[len(row)] = []
            batches.append(batch)
        batch.append(row)
    return batches


def _sample(
    rows: Sequence[Tokens], shapes: Mapping[str, Sequence[int | str]], fixed: int
) -> dict[str, Tokens]:
    """Values of the inputs [rows, tokens]; up to a fixed number of tokens they are 0."""
    ids = np.stack(rows)
    values = {
        "ids": ids, "ones": np.ones_like(ids), "zeros": np.zeros_like(ids),
        "positions": np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape),
    }  # fmt: skip
    pad = ((0, 0), (0, max(0, fixed - ids.shape[1])))
    return {name: np.pad(values[_CONTENTS[name]], pad) for name in shapes}
