"""llama.cpp loads the GGUF files of tiny encoders, and its vectors and scores are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xllamacpp
from tests.formats.files import tensor
from tests.text.architectures.models import largest_difference
from tests.text.encoders import encoders
from tests.text.encoders.encoders import TEXTS

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.architectures._encoder import EXPERTS_BIAS
from halfbyte.text.opening import open_model

GELU_BOUND = 5e-3  # llama.cpp looks GELU up in a table of F16
ROUTED_BOUND = 2e-2  # which may send a token to another expert
THERE = [name for name in encoders.OTHERS if not name.startswith(("gte", "mpnet"))]
# Its heads have no relu
RANKS = [name for name in encoders.RANKS if not name.startswith(("gte", "mpnet", "distilbert"))]


def server(path: Path, *, rank: bool = False) -> Any:
    """llama.cpp with a model that turns texts into vectors, or scores pairs of them."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 256, 1, 0
    parameters.warmup, parameters.verbosity, parameters.embedding = False, -1, True
    parameters.cpuparams.n_threads = 1
    if rank:
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    return xllamacpp.Server(parameters)


def vectors(path: Path) -> Any:
    """llama.cpp's vectors of the texts, of length 1."""
    answer = server(path).handle_embeddings({"input": TEXTS})
    found = np.array([row["embedding"] for row in answer["data"]])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("name", THERE)
def test_vectors_agree(name: str, tmp_path: Path) -> None:
    """In F32, and for one model in int8, with each pooling; without what llama.cpp leaves out."""
    for pooling in ("mean", "cls") if name == "bert" else ("mean",):
        folder = encoders.write(tmp_path / pooling, name, pooling)
        file = open_model(folder)
        path = tmp_path / "model.gguf"
        tensors = {n: t for n, t in file.tensors.items() if not n.endswith(EXPERTS_BIAS)}
        write_gguf(path, file.metadata, [tensor(n, t.decode()) for n, t in tensors.items()])
        with halfbyte.load_encoder(path) as model:
            ours = model.embed(TEXTS, normalize=True)
        bound = ROUTED_BOUND if name == "nomic-bert-moe" else GELU_BOUND
        assert largest_difference(vectors(path).astype(np.float32), ours) < bound
    if name == "bert":
        quantize_file(folder, "int8", path)
        with halfbyte.load_encoder(path) as model:
            ours = model.embed(TEXTS, normalize=True)
        assert ((vectors(path) * ours).sum(axis=1) > 0.999).all()


@pytest.mark.parametrize("name", RANKS)
def test_scores_agree(name: str, tmp_path: Path) -> None:
    """Where all types of tokens are one: llama.cpp gives both texts of a pair the first."""
    file = open_model(encoders.write(tmp_path / "m", name))
    tensors = {n: t.decode() for n, t in file.tensors.items()}
    if "token_types.weight" in tensors:
        types = tensors["token_types.weight"]
        tensors["token_types.weight"] = np.repeat(types[:1], len(types), axis=0)
    path = tmp_path / "model.gguf"
    write_gguf(path, file.metadata, [tensor(n, x) for n, x in tensors.items()])
    texts = [text for text in TEXTS if len(text) < encoders.CONTEXT]  # others do not fit
    answer = server(path, rank=True).handle_rerank({"query": encoders.QUERY, "documents": texts})
    rows = sorted(answer["results"], key=lambda row: row["index"])
    found = np.array([row["relevance_score"] for row in rows], np.float32)
    with halfbyte.load_encoder(path) as model:
        ours = model.rerank(encoders.QUERY, texts)
    assert largest_difference(found, ours) < GELU_BOUND
