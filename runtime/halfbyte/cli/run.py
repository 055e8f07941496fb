"""``halfbyte run``: continue a text with a language model, or run an ONNX graph.

`run_text` and `run_graph` implement the command with the same function, ``run(options)``.
"""

from __future__ import annotations

import argparse

from halfbyte.cli import prompts, run_graph, run_text
from halfbyte.cli.common import add_execution, add_generation, command
from halfbyte.cli.pace import add_pace
from halfbyte.cli.parser import Commands, Parser, number, whole
from halfbyte.onnx.files import is_onnx_file

MAX_TOKENS = 256
_EXAMPLES = (
    'halfbyte run model.gguf "Once upon a time" -n 200 --temp 0.8 --seed 7',
    "halfbyte run model.gguf Why is the sky blue  # one prompt; quotes keep ? and * from the shell",
    "halfbyte run model.gguf --file prompt.txt -n -1",
    "cat prompt.txt | halfbyte run model.gguf",
    "halfbyte run instruct.gguf 'The sky is' --raw  # without the model's chat template",
    "halfbyte run model.gguf 'Who are you?' --template chatml",
    "halfbyte run model.gguf Once --json",
    "halfbyte run model.gguf Once --top-k 40 --top-p 0.95 --min-p 0.05 --stop 'The end'",
    "halfbyte run model.gguf Once --repetition-penalty 1.1 --logit-bias 17=-inf",
    "halfbyte run model.gguf Once --frequency-penalty 0.2 --presence-penalty 0.1",
    "halfbyte run model.gguf Once --beams 4 --length-penalty 0.5",
    "halfbyte run model.gguf Once --context 2048 --cache q8_0 --memory-budget 256MB",
    "halfbyte run model.gguf Once --level basic --weights mapped",
    "halfbyte run model.gguf Once --threads 2 --backend native-avx2 --profile",
    "halfbyte run model.gguf Once -n -1 --pace  # below the temperature that slows the machine",
    "halfbyte run model.gguf Once -n -1 --pace-at 65",
    "halfbyte run model.gguf Once --passes off --activations float",
    "halfbyte run model.gguf 'Who are you?' --lora pirate.gguf --lora folder-of-peft=0.5",
    "halfbyte run stories.bin Once --tokenizer tokenizer.bin",
    "halfbyte run classifier.onnx --input picture.bmp --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5",
    "halfbyte run classifier.onnx --input picture.bmp --scale 1 --bgr",
    "halfbyte run bert.onnx --size batch=2 --runs 20 --dump",
    "halfbyte run model.onnx --input inputs.npz --output outputs.npz --force",
)


def add_run(commands: Commands[Parser]) -> None:
    """The command `run`."""
    parser = command(
        commands,
        "run",
        _run,
        "continue a text with a language model, or run an ONNX graph; statistics go to stderr",
        *_EXAMPLES,
    )
    prompts.add_text(parser, "PROMPT", "the beginning of the text")
    add_generation(parser, MAX_TOKENS)
    parser.add_argument(
        "--raw", action="store_true",
        help="continue the prompt as it is, even if the model has a chat template, with which it "
        "would answer",
    )  # fmt: skip
    add_template(parser)
    parser.add_argument(
        "--beams", type=whole, metavar="N",
        help="search for the likeliest text with N beams, instead of sampling",
    )  # fmt: skip
    parser.add_argument(
        "--length-penalty", type=number, metavar="X",
        help="more than 0 favours long texts in beam search (default: 1.0)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true",
        help="print the text, its tokens with their log-probabilities, and times as JSON",
    )  # fmt: skip
    parser.add_argument(
        "--profile", action="store_true", help="print time, bytes and GB/s per kernel"
    )
    add_pace(parser)
    add_execution(parser)
    run_graph.add_graph_options(parser)


def add_template(parser: Parser) -> None:
    """Add the option `--template`."""
    parser.add_argument(
        "--template", metavar="NAME",
        help="chat template: chatml, a file with a Jinja template, or the name of one of the "
        "model's templates (default: the model's)",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    run = run_graph.run if is_onnx_file(options.model) else run_text.run
    return run(options)
