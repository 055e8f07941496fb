"""``halfbyte fit``: whether a model fits a device, and what would."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.cli.run_graph import add_sizes, refuse_graph_options, refuse_text_options
from halfbyte.cli.shared import command, given_settings
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation.columns import table
from halfbyte.formats import open_model
from halfbyte.onnx.files import is_onnx_file
from halfbyte.text.footprint import FILE
from halfbyte.text.planning import LEVELS, WEIGHTS

if TYPE_CHECKING:
    from halfbyte.device.fit import Fit, Need, Spread, Verdict
    from halfbyte.device.graphs import GraphNeed
    from halfbyte.device.profile import Profile

    N = TypeVar("N", bound=Verdict)

NO = 1  # the exit code where it does not fit


def add_fit(commands: Commands[Parser]) -> None:
    """The command `fit`."""
    parser = command(
        commands, "fit", _fit,
        "whether a model fits into the memory of a device, how fast it starts out, and what would "
        "fit; the exit code is 1 where it does not",
        "halfbyte fit model.gguf --device android-go-2gb --context 2048",
        "halfbyte fit model.gguf --device pixel-6 --tab             in a tab of its browser",
        "halfbyte fit model.gguf --device pixel-6 --level basic --weights streamed --batch 16",
        "halfbyte fit bert.onnx --device galaxy-s25 --size batch=1 --threads 2 --json",
    )  # fmt: skip
    parser.add_argument(
        "--device", required=True, metavar="NAME",
        help="a name from `halfbyte device list`, or a .toml file",
    )  # fmt: skip
    parser.add_argument(
        "--level", choices=LEVELS,
        help="of language models; baseline: weights packed for speed; basic: mapped, so that the "
        "system may drop their pages; aggressive: and the smallest cache, 2048 tokens, small "
        "batches; extreme: weights streamed from storage, 1024 tokens (default: baseline)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="auto", help="in place of the level's"
    )
    parser.add_argument(
        "--batch", type=whole, metavar="N", help="prompt tokens at once, in place of the level's"
    )
    parser.add_argument(
        "--tab", action="store_true",
        help="in a tab of the device's browser, not in an app: WebAssembly on one thread; weights "
        "lie packed in the tab's heap, so only --context, --cache, --batch and smaller types need "
        "less",
    )  # fmt: skip
    add_sizes(parser, "an open size of a graph's inputs, as in batch=32; may be repeated")
    parser.add_argument(
        "--threads", "-t", type=whole, metavar="N", help="cores (default: the fast ones)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _fit(options: argparse.Namespace) -> int:
    from halfbyte.device.profile import load_profile

    profile = load_profile(options.device)
    if options.tab and options.threads not in (None, 1):
        raise HalfbyteError(f"--threads {options.threads}: a tab computes on one thread")
    found: Fit[Need] | Fit[GraphNeed]
    if is_onnx_file(options.model):
        found = _of_graph(options, profile)
        lines = _graph_lines(found, profile.title)
    else:
        found = _of_language_model(options, profile)
        lines = _lines(found, profile.title)
    print(json.dumps(found.as_json(), indent=1) if options.json else "\n".join(lines))
    return 0 if found.fits else NO


def _of_language_model(options: argparse.Namespace, profile: Profile) -> Fit[Need]:
    from halfbyte.device.fit import Fitter

    refuse_graph_options(options)
    file = open_model(options.model, options.tokenizer)
    level = options.level or "baseline"
    fitter = Fitter(file, profile, options.threads, tab=options.tab)
    return fitter.fit(level, given_settings(options))


def _of_graph(options: argparse.Namespace, profile: Profile) -> Fit[GraphNeed]:
    from halfbyte.device.graphs import GraphFitter
    from halfbyte.onnx.session.opening import open_model as open_graph
    from halfbyte.onnx.session.options import SessionOptions

    refuse_text_options(options)
    model = open_graph(options.model, SessionOptions())
    fitter = GraphFitter(model, profile, options.threads, tab=options.tab)
    try:
        return fitter.fit(dict(options.size))
    finally:
        fitter.close()


def _lines(found: Fit[Need], title: str) -> Iterator[str]:
    from halfbyte.device.speed import HELD, PROMPT

    asked = found.asked
    yield from _head(found, title)
    yield from _memory(asked, f"with {asked.settings}, at a context of {asked.context} tokens")
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
    yield (
        f"tokens/s of decoding with {min(HELD, asked.context - 1)} tokens in the context, and of a "
        f"prompt of {min(PROMPT, asked.context)}"
    )
    yield from _tail(found, "decode tokens/s", [_speed(need.decode) for need in found.would])


def _graph_lines(found: Fit[GraphNeed], title: str) -> Iterator[str]:
    asked = found.asked
    yield from _head(found, title)
    inputs = [f"{name} {list(shape)}" for name, shape in asked.inputs.items()]
    yield from _memory(asked, f"of a run with {', '.join(inputs) or 'no inputs'}")
    yield ""
    yield f"runs/s: {_speed(asked.runs)}"
    yield from _tail(found, "runs/s", [_speed(need.runs) for need in found.would])


def _head(found: Fit[N], title: str) -> Iterator[str]:
    limit = found.limit_mb
    yield f"{found.model} on {title}"
    who = "a tab" if found.place == "tab" else "an app"
    yield f"{who} may take {limit.shown} MB ({limit.span}; {limit.origin})"
    yield ""


def _tail(found: Fit[N], unit: str, speeds: list[str]) -> Iterator[str]:
    cores = "one core" if found.threads == 1 else f"{found.threads} cores"
    yield f"on {cores}, nothing hot yet: median and 10 to 90 % of what is not known"
    yield ""
    yield _verdict(found)
    if found.would:
        yield "What would fit:"
        pairs = zip(found.would, speeds, strict=True)
        rows = [[n.settings, _mb(n.private), speed, _storage(n)] for n, speed in pairs]
        yield from table(["", "own MB", unit, ""], rows)
    elif not found.fits:
        yield "Nothing that halfbyte can do makes it fit."


def _memory(need: Verdict, what: str) -> Iterator[str]:
    yield f"memory {what}"
    for kind, size in need.memory.items():
        if size:
            yield f"  {kind:<20}{_mb(size):>10} MB"
    yield f"  {'total':<20}{_mb(need.total):>10} MB"


def _verdict(found: Fit[N]) -> str:
    from halfbyte.device.fit import too_large
    from halfbyte.download.transfer import ARRAY_BYTES

    need, limit = found.asked, found.limit_mb
    margin = limit.value * 1e6 - need.private
    words = f"with {_mb(margin)} MB to spare" if need.fits else f"{_mb(-margin)} MB too much"
    if too_large(need.memory):
        file, most = need.memory[FILE] / 1e6, ARRAY_BYTES / 1e6
        words = f"the file has {file:.0f} MB; an array has at most {most:.0f} MB there"
    doubt = "" if need.sure else "; within what is not known of the device"
    text = f"{'fits' if need.fits else 'DOES NOT FIT'}: {words}{doubt}"
    return f"{text}; {_storage(need)}" if need.from_storage else text


def _storage(need: Verdict) -> str:
    return "weights are read from storage in every run" if need.from_storage else ""


def _word(need: Verdict) -> str:
    return ("yes" if need.fits else "no") + ("" if need.sure else "?")


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"


def _speed(spread: Spread | None) -> str:
    if spread is None:
        return "much slower, by NumPy"
    return f"{spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})"
