"""``halfbyte pull``, and names of models on the Hugging Face hub."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from halfbyte.cli.common import add_debug, ask
from halfbyte.cli.parser import Commands, Parser
from halfbyte.download.choice import is_address
from halfbyte.download.hub import pull
from halfbyte.errors import HalfbyteError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(:[^:]+)?")
_FILES = {".gguf", ".onnx", ".bin", ".safetensors", ".pt", ".pth", ".th", ".json", ".model"}


def add_pull(commands: Commands[Parser]) -> None:
    """The command `pull`."""
    parser = commands.add_parser(
        "pull",
        help="download a model from the Hugging Face hub, and print its path",
        description="Download the files of a model that halfbyte needs from the Hugging Face hub "
        "into the hub's cache. Prints the path, which the other commands take.",
        examples=[
            "halfbyte pull HuggingFaceTB/SmolLM2-135M-Instruct",
            "halfbyte pull HuggingFaceTB/SmolLM2-135M --revision main",
            "halfbyte pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0",
            "halfbyte pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:qwen2.5-0.5b-instruct-q8_0.gguf",
            'halfbyte run hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_0 "Hello"  # pulls, then runs',
        ],
    )
    parser.add_argument(
        "model", metavar="REPO[:TAG]",
        help="a repository, with the type of one of its GGUF files (by default Q4_K_M, if it is "
        "there) or the file's name; hf.co/ may come before it",
    )  # fmt: skip
    parser.add_argument("--revision", metavar="REV", help="a branch, a tag or a commit")
    add_debug(parser)
    parser.set_defaults(command=_pull)


def _pull(options: argparse.Namespace) -> int:
    print(pull(options.model, options.revision, _note))
    return 0


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def located(model: Path) -> Path:
    """The path of a model; one of the hub is downloaded, if it begins with hf.co/ or else if the
    user agrees.

    Raises
    ------
    HalfbyteError
        The path does not exist, but may be a repository: the message says how to download it.
    """
    name = model.as_posix()
    if is_address(name) and not model.exists():
        return pull(name, note=_note)
    repository = name.partition(":")[0]
    if (
        not _REPOSITORY.fullmatch(name)
        or model.exists()
        or model.parent.exists()
        or Path(repository).suffix in _FILES
    ):
        return model
    if ask(f"There is no {name} here. Download it from the Hugging Face hub?"):
        return pull(name, note=_note)
    raise HalfbyteError(
        f"{name}: no such file or folder. If it is a model of the Hugging Face hub, "
        f"`halfbyte pull {name}` downloads it and prints the path to use here"
    )
