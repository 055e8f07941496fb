"""``halfbyte fit``: whether a model fits a device, and what would."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from halfbyte.cli.shared import Commands, command, given_settings
from halfbyte.errors import UnsupportedError
from halfbyte.formats import open_model
from halfbyte.formats.onnx import is_onnx_file
from halfbyte.planning import LEVELS, WEIGHTS
from halfbyte.tables import table

if TYPE_CHECKING:
    from halfbyte.device.fit import Fit, Need, Spread

NO = 1  # the exit code where it does not fit


def add_fit(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `fit`."""
    parser = command(
        commands, "fit", _fit,
        "whether a model fits into the memory of a device, how fast it starts out, and what would "
        "fit; the exit code is 1 where it does not",
        "halfbyte fit model.gguf --device android-go-2gb --context 2048",
    )  # fmt: skip
    parser.add_argument(
        "--device", required=True, metavar="NAME",
        help="a name from `halfbyte device list`, or a .toml file",
    )  # fmt: skip
    parser.add_argument(
        "--level", choices=LEVELS, default="baseline",
        help="baseline: weights packed for speed; basic: mapped, so that the system may drop "
        "their pages; aggressive: and the smallest cache, 2048 tokens, small batches; extreme: "
        "weights streamed from storage, 1024 tokens (default: baseline)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="auto", help="in place of the level's"
    )
    parser.add_argument("--batch", type=int, help="prompt tokens at once, in place of the level's")
    parser.add_argument("--threads", "-t", type=int, help="cores (default: the fast ones)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _fit(options: argparse.Namespace) -> int:
    from halfbyte.device.fit import Fitter
    from halfbyte.device.profile import load_profile

    if is_onnx_file(options.model):
        raise UnsupportedError(
            f"{options.model}: expected a language model, found an ONNX graph, whose memory "
            "depends on its inputs"
        )
    profile = load_profile(options.device)
    file = open_model(options.model, options.tokenizer)
    found = Fitter(file, profile, options.threads).fit(options.level, given_settings(options))
    if options.json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        print("\n".join(_lines(found, profile.title)))
    return 0 if found.fits else NO


def _lines(found: Fit, title: str) -> Iterator[str]:
    limit, asked = found.limit_mb, found.asked
    yield f"{found.model} on {title}"
    yield f"an app may take {limit.shown} MB ({limit.span}; {limit.origin})"
    yield ""
    yield from _memory(asked)
    yield ""
    heads = ["level", "context", "own MB", "with mapped", "fits", "decode tokens/s", "prompt"]
    rows = [
        [
            name, str(need.context), _mb(need.private), _mb(need.total), _word(need),
            _speed(need.decode), _speed(need.prompt),
        ]
        for name, need in found.levels.items()
    ]  # fmt: skip
    yield from table(heads, rows)
    yield f"on {found.threads} cores, nothing hot yet: median and 10 to 90 % of what is not known"
    yield ""
    yield _verdict(found)
    if found.would:
        yield "What would fit:"
        rows = [[n.settings, _mb(n.private), _speed(n.decode), _storage(n)] for n in found.would]
        yield from table(["", "own MB", "decode tokens/s", ""], rows)
    elif not found.fits:
        yield "Nothing that halfbyte can do makes it fit."


def _memory(need: Need) -> Iterator[str]:
    yield f"memory with {need.settings}, at a context of {need.context} tokens"
    for kind, size in need.memory.items():
        if size:
            yield f"  {kind:<20}{_mb(size):>10} MB"
    yield f"  {'total':<20}{_mb(need.total):>10} MB"


def _verdict(found: Fit) -> str:
    need, limit = found.asked, found.limit_mb
    margin = limit.value * 1e6 - need.private
    words = f"with {_mb(margin)} MB to spare" if need.fits else f"{_mb(-margin)} MB too much"
    doubt = "" if need.sure else "; within what is not known of the device"
    text = f"{'fits' if need.fits else 'DOES NOT FIT'}: {words}{doubt}"
    return f"{text}; {_storage(need)}" if need.from_storage else text


def _storage(need: Need) -> str:
    return "weights are read from storage for every token" if need.from_storage else ""


def _word(need: Need) -> str:
    return ("yes" if need.fits else "no") + ("" if need.sure else "?")


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"


def _speed(spread: Spread) -> str:
    return f"{spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})"
