"""``halfbyte fit``: whether a model fits a device, and what would fit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from halfbyte.cli.common import command, given_settings
from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.cli.run_graph import add_sizes, refuse_graph_options, refuse_text_options
from halfbyte.columns import table
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files import is_onnx_file
from halfbyte.text.footprint import FILE
from halfbyte.text.outline import KIND, open_plannable
from halfbyte.text.planning import LEVELS, WEIGHTS

if TYPE_CHECKING:
    from halfbyte.device.fit import Need
    from halfbyte.device.graphs import GraphNeed
    from halfbyte.device.profile import Profile
    from halfbyte.device.room import Fit, Spread, Verdict
    from halfbyte.formats.model_file import ModelFile

    N = TypeVar("N", bound=Verdict)

NO = 1  # the exit code if the model does not fit


def add_fit(commands: Commands[Parser]) -> None:
    """The command `fit`."""
    parser = command(
        commands, "fit", _fit,
        "show whether a model fits into the memory of a device, its speed there, and what would "
        "fit; the exit code is 1 if it does not fit",
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
        help="presets of language models. baseline: weights packed for speed; basic: weights "
        "mapped, so that the system may drop their pages; aggressive: also the smallest cache, "
        "2048 tokens, small batches; extreme: weights streamed from storage, 1024 tokens (default: "
        "baseline)",
    )  # fmt: skip
    parser.add_argument("--weights", choices=WEIGHTS, default="auto", help="instead of the level's")
    parser.add_argument(
        "--batch", type=whole, metavar="N", help="prompt tokens at once, instead of the level's"
    )
    parser.add_argument(
        "--tab", action="store_true",
        help="in a tab of the device's browser instead of an app: WebAssembly on one thread; "
        "weights are packed in the tab's heap, so only --context, --cache, --batch and smaller "
        "types save memory",
    )  # fmt: skip
    add_sizes(parser, "value of an open dimension of a graph's inputs, as in batch=32; may be "
              "repeated")  # fmt: skip
    parser.add_argument(
        "--threads", "-t", type=whole, metavar="N", help="cores (default: the fast ones)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _fit(options: argparse.Namespace) -> int:
    from halfbyte.device.profile import load_profile

    profile = load_profile(options.device)
    if options.tab and options.threads not in (None, 1):
        raise HalfbyteError(f"--threads {options.threads}: a tab computes on one thread")
    fit: Fit[Need] | Fit[GraphNeed]
    if is_onnx_file(options.model):
        fit = _of_graph(options, profile)
        lines = _graph_lines(fit, profile.title)
    else:
        fit = _of_language_model(options, profile)
        lines = _lines(fit, profile.title)
    print(json.dumps(fit.as_json(), indent=1) if options.json else "\n".join(lines))
    return 0 if fit.fits else NO


def _of_language_model(options: argparse.Namespace, profile: Profile) -> Fit[Need]:
    from halfbyte.device.fit import Fitter

    refuse_graph_options(options)
    file = opened(options)
    level = options.level or "baseline"
    fitter = Fitter(file, profile, options.threads, tab=options.tab)
    return fitter.fit(level, given_settings(options))


def opened(options: argparse.Namespace) -> ModelFile:
    """The language model, whose weights may be missing: that is said on stderr."""
    file = open_plannable(options.model, options.tokenizer)
    if file.kind == KIND:
        for note in file.notes:
            print(f"note: {file.path}: {note}", file=sys.stderr)
    return file


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


def _lines(fit: Fit[Need], title: str) -> Iterator[str]:
    from halfbyte.device.speed import HELD, PROMPT

    asked = fit.asked
    yield from _head(fit, title)
    yield from _memory(asked, f"with {asked.settings}, at a context of {asked.context} tokens")
    yield ""
    heads = ["level", "context", "own MB", "with mapped", "fits", "decode tokens/s", "prompt"]
    rows = [
        [
            name, str(need.context), _mb(need.private), _mb(need.total), _yes_or_no(need),
            _speed(need.decode), _speed(need.prompt),
        ]
        for name, need in fit.levels.items()
    ]  # fmt: skip
    yield from table(heads, rows)
    yield (
        f"tokens/s of decoding with {min(HELD, asked.context - 1)} tokens in the context, and of a "
        f"prompt of {min(PROMPT, asked.context)}"
    )
    yield from _tail(fit, "decode tokens/s", [_speed(need.decode) for need in fit.would])


def _graph_lines(fit: Fit[GraphNeed], title: str) -> Iterator[str]:
    asked = fit.asked
    yield from _head(fit, title)
    inputs = [f"{name} {list(shape)}" for name, shape in asked.inputs.items()]
    yield from _memory(asked, f"of a run with {', '.join(inputs) or 'no inputs'}")
    yield ""
    yield f"runs/s: {_speed(asked.runs)}"
    yield from _tail(fit, "runs/s", [_speed(need.runs) for need in fit.would])


def _head(fit: Fit[N], title: str) -> Iterator[str]:
    limit = fit.limit_mb
    yield f"{fit.model} on {title}"
    who = "a tab" if fit.place == "tab" else "an app"
    yield f"{who} may take {limit.shown} MB ({limit.span}; {limit.origin})"
    yield ""


def _tail(fit: Fit[N], unit: str, speeds: list[str]) -> Iterator[str]:
    cores = "one core" if fit.threads == 1 else f"{fit.threads} cores"
    yield f"on {cores}, while the device is cool: median, and 10 to 90 % of the uncertainty"
    yield origins(fit.numbers)
    yield ""
    yield _verdict(fit)
    if fit.would:
        yield "What would fit:"
        pairs = zip(fit.would, speeds, strict=True)
        rows = [[n.settings, _mb(n.private), speed, _storage(n)] for n, speed in pairs]
        yield from table(["", "own MB", unit, ""], rows)
    elif not fit.fits:
        yield "No setting of halfbyte makes it fit."


def origins(numbers: Mapping[str, int]) -> str:
    """How many numbers of a device are known."""
    return (
        f"of the device's numbers {numbers['sourced']} have a source, {numbers['assumed']} are "
        "assumed"
    )


def _memory(need: Verdict, what: str) -> Iterator[str]:
    yield f"memory {what}"
    for kind, size in need.memory.items():
        if size:
            yield f"  {kind:<20}{_mb(size):>10} MB"
    yield f"  {'total':<20}{_mb(need.total):>10} MB"


def _verdict(fit: Fit[N]) -> str:
    from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES

    need, limit = fit.asked, fit.limit_mb
    margin = limit.value * 1e6 - need.private
    why = f"with {_mb(margin)} MB to spare" if need.fits else f"{_mb(-margin)} MB too much"
    if margin >= 0 and not need.fits:  # the only other limit
        file, limit_mb = need.memory[FILE] / 1e6, ARRAY_BYTES / 1e6
        why = f"the file has {file:.0f} MB; an array has at most {limit_mb:.0f} MB there"
    doubt = "" if need.sure else "; uncertain, as the device's limit is not known exactly"
    text = f"{'fits' if need.fits else 'DOES NOT FIT'}: {why}{doubt}"
    if fit.place == "tab" and need.fits and need.private > HEAP_BYTES:
        text += "; it needs 64-bit memory, which Chromium and Firefox have"
    return f"{text}; {_storage(need)}" if need.from_storage else text


def _storage(need: Verdict) -> str:
    return "weights are read from storage in every run" if need.from_storage else ""


def _yes_or_no(need: Verdict) -> str:
    return ("yes" if need.fits else "no") + ("" if need.sure else "?")


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e8 else f"{size / 1e6:,.0f}"


def _speed(spread: Spread | None) -> str:
    if spread is None:
        return "much slower, by NumPy"
    return f"{spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})"
