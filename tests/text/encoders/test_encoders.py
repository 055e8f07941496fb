"""Vectors and scores of tiny encoders are those of `transformers`, alone and in batches."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.files import tensor
from tests.formats.folders import write_json, write_safetensors
from tests.text.architectures.models import largest_difference, values
from tests.text.architectures.test_folders import write as write_decoder
from tests.text.encoders import encoders
from tests.text.encoders.encoders import QUERY, TEXTS

import halfbyte
from halfbyte.errors import HalfbyteError, MemoryBudgetError
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import architectures
from halfbyte.text.architectures._distance import biases, buckets
from halfbyte.text.describe import describe
from halfbyte.text.encoder import TextEncoder
from halfbyte.text.opening import open_model

BOUND = 1e-4


def run(model: TextEncoder, texts: list[str]) -> Any:
    if model.pooling == 4:
        return model.rerank(QUERY, texts)
    return model.embed(texts)


@pytest.mark.parametrize("name", encoders.CONFIGS)
def test_of_the_original(name: str, tmp_path: Path) -> None:
    """From a folder and from GGUF; each text alone; and in types with fewer bits."""
    folder, expected = encoders.write(tmp_path / "m", name), encoders.expected(name)
    with halfbyte.load_encoder(folder) as model:
        found = run(model, TEXTS)
        assert largest_difference(found, expected) < BOUND
        alone = np.concatenate([run(model, [text]) for text in TEXTS])
        np.testing.assert_array_equal(alone, found)
        assert run(model, []).shape == (0, *expected.shape[1:])
    for kind, bound in (("bf16", 0.05), ("int8", 0.05), ("int4", 0.7)):
        path = tmp_path / f"{kind}.gguf"
        quantize_file(folder, kind, path)
        with halfbyte.load_encoder(path) as model:
            smaller = run(model, TEXTS)
            assert largest_difference(smaller, expected) < bound
            alone = np.concatenate([run(model, [text]) for text in TEXTS[::-1]])[::-1]
            np.testing.assert_array_equal(alone, smaller)
        with halfbyte.load_encoder(path, weights="mapped", threads=2) as mapped:
            np.testing.assert_array_equal(run(mapped, TEXTS), smaller)
        with halfbyte.load_encoder(path, activations="float") as floats:
            assert largest_difference(run(floats, TEXTS), expected) < bound


def test_a_bias_of_experts_that_is_zero_is_left_out(tmp_path: Path) -> None:
    """So that llama.cpp, which has none, opens the file."""
    folder = encoders.write(tmp_path / "m", "nomic-bert-moe")
    own = encoders.tensors("nomic-bert-moe")
    name = "blk.{}.ffn_exps.bias"
    assert {name.format(1), name.format(3)} <= open_model(folder).tensors.keys()
    own["encoder.layers.1.mlp.experts.bias"][:] = 0
    write_safetensors(folder / "model.safetensors", own)
    file = open_model(folder)
    assert name.format(1) not in file.tensors
    assert name.format(3) in file.tensors
    assert file.tensors["blk.1.ffn_down_exps.weight"].shape == (5, 32, 64)
    own["encoder.layers.3.mlp.experts.mlp.w2"] = own["encoder.layers.3.mlp.experts.mlp.w2"][1:]
    write_safetensors(folder / "model.safetensors", own)
    with pytest.raises(HalfbyteError, match=r"mlp\.w2': 319 rows: expected a multiple of 5"):
        open_model(folder)


def test_every_type_and_architecture_has_a_model() -> None:
    types = architectures.model_types()
    own = {n for n, m in types.items() if hasattr(m, "HEADS") and n in m.MODEL_TYPES}
    tested = [naming(encoders.config(name), types) for name in encoders.CONFIGS]
    assert {names.kind for names in tested} == own | {"gemma3_text"}
    assert {names.metadata["general.architecture"] for names in tested} == {
        name.replace("_", "-")
        for name in architectures.names()
        if hasattr(architectures.get(name), "HEADS")
    }


@pytest.mark.parametrize("name", ["bert", "jina-bert-v2", "modernbert"])
def test_backends(backend: str, name: str, tmp_path: Path) -> None:
    """Learned positions, biases of distances, rotation with windows."""
    expected = encoders.expected(name)
    folder = encoders.write(tmp_path / "m", name)
    with halfbyte.load_encoder(folder, backend=backend) as model:
        assert largest_difference(model.embed(TEXTS), expected) < BOUND
    quantize_file(folder, "int8", tmp_path / "m.gguf")
    with halfbyte.load_encoder(tmp_path / "m.gguf", backend=backend) as model:
        assert largest_difference(model.embed(TEXTS), expected) < 0.05


@pytest.mark.parametrize("name", ["bert", "nomic_bert"])
def test_results_do_not_depend_on_threads_and_instruction_sets(name: str, tmp_path: Path) -> None:
    """In int8, whose sums have one order."""
    quantize_file(encoders.write(tmp_path / "m", name), "int8", tmp_path / "m.gguf")
    found = []
    for backend, threads in (("native", 1), ("native", 2), ("native-scalar", 1)):
        with halfbyte.load_encoder(tmp_path / "m.gguf", backend=backend, threads=threads) as model:
            found.append(model.embed(TEXTS * 3))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    np.testing.assert_array_equal(found[0][:4], found[0][8:])


def test_pooling_and_normalization_of_the_folder(tmp_path: Path) -> None:
    """Of every token's vector: their mean, the first or the last; then of length 1."""
    vectors, ends = {}, {}
    for pooling in ("mean", "cls", "lasttoken"):
        folder = encoders.write(tmp_path / pooling, "bert", pooling, normalize=pooling == "cls")
        with halfbyte.load_encoder(folder) as model:
            vectors[pooling] = model.embed(TEXTS, normalize=False)
            ends[pooling] = model.embed([""], normalize=False)  # only the tokens around a text
            lengths = np.linalg.norm(model.embed(TEXTS), axis=1)
            units = np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1)
            assert (np.abs(lengths - 1) < 1e-6).all() == (pooling == "cls")
            np.testing.assert_allclose(units, 1, rtol=1e-6)
    assert largest_difference(vectors["cls"], vectors["mean"]) > 0.1
    assert largest_difference(vectors["lasttoken"], vectors["cls"]) > 0.1
    assert largest_difference(ends["cls"] + ends["lasttoken"], 2 * ends["mean"]) < 1e-6
    with halfbyte.load_encoder(encoders.write(tmp_path / "plain", "bert", "")) as model:
        np.testing.assert_array_equal(model.embed(TEXTS), vectors["mean"])
        assert any("mean of its tokens" in note for note in model.notes)


def test_prompts(tmp_path: Path) -> None:
    folder = encoders.write(tmp_path / "m", "bert")
    prompts = {"query": "w1 w2 ", "document": "w3 "}
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": "document"},
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 6})
    quantize_file(folder, "bf16", tmp_path / "m.gguf")
    with halfbyte.load_encoder(tmp_path / "m.gguf") as model:
        assert (model.prompts, model.context) == (prompts, 6)
        query = model.embed(["w9"], prompt_name="query")
        np.testing.assert_array_equal(query, model.embed(["w1 w2 w9"], prompt=""))
        np.testing.assert_array_equal(model.embed(["w9"]), model.embed(["w3 w9"], prompt=""))
        long = model.embed(["w9 w8 w7 w6"], prompt="w5 w4 w3 w2 ")
        assert model.cut == 1
        np.testing.assert_array_equal(long, model.embed(["w5 w4 w3 w2"], prompt=""))
        assert model.cut == 0
        with pytest.raises(HalfbyteError, match=r"'passage': expected one of \['query', 'doc"):
            model.embed(["w9"], prompt_name="passage")
        with pytest.raises(HalfbyteError, match="prompt_name: prompt is given too"):
            model.embed(["w9"], prompt_name="query", prompt="w1")
        with pytest.raises(TypeError, match="texts: expected several str, found str"):
            model.embed("w9")


def test_progress_and_threads(tmp_path: Path) -> None:
    """Texts of several threads are not mixed up."""
    done: list[int] = []
    with halfbyte.load_encoder(encoders.write(tmp_path / "m", "bert")) as model:
        expected = model.embed(TEXTS * 5, progress=done.append)
        assert done == sorted(set(done))
        assert done[-1] == 20
        assert len(done) > 5  # of 40 tokens each
        found: dict[int, Any] = {}
        threads = [
            threading.Thread(target=lambda i=i: found.update({i: model.embed(TEXTS * 5)}))
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 3
        for vectors in found.values():
            np.testing.assert_array_equal(vectors, expected)
    with pytest.raises(HalfbyteError, match="the model is closed"):
        model.embed(["w1"])


def test_what_a_model_does_not_do_is_said(tmp_path: Path) -> None:
    folder, ranks = (encoders.write(tmp_path / name, name) for name in ("bert", "bert-rank"))
    with pytest.raises(HalfbyteError, match=r"'bert' writes no text.*load_encoder"):
        halfbyte.load(folder)
    with pytest.raises(MemoryBudgetError, match=r"at most 1\.0 MB"):
        halfbyte.load_encoder(folder, memory_budget=1_000_000)
    with pytest.raises(HalfbyteError, match="context of 41 tokens: expected 1 to 40"):
        halfbyte.load_encoder(folder, context=41)
    with halfbyte.load_encoder(folder) as model, pytest.raises(HalfbyteError, match="cross-enc"):
        model.rerank("w1", ["w2"])
    with halfbyte.load_encoder(ranks, context=8) as model:
        with pytest.raises(HalfbyteError, match="scores pairs of texts: expected rerank"):
            model.embed(["w1"])
        with pytest.raises(HalfbyteError, match="query: 5 tokens leave no room for a text"):
            model.rerank("w1 w2 w3 w4 w5", ["w2"])
        model.rerank("w1 w2", ["w2", "w2 w3 w4 w5"])
        assert model.cut == 1
    shown = describe(folder)
    assert "token_types.weight" in shown
    assert "planned memory at a context of 40 tokens" in shown
    with pytest.raises(HalfbyteError, match="expected a model that turns texts into vectors"):
        halfbyte.load_encoder(Path(halfbyte.__file__).parent / "data/storyteller.bin")


TRANSFORMER, POOLING, NORMALIZE = (
    {"type": f"sentence_transformers.models.{name}", "path": f"1_{name}"}
    for name in ("Transformer", "Pooling", "Normalize")
)
REFUSED: list[tuple[str, str, Any, str]] = [
    ("bert", "config.json", {"hidden_act": "gelu_new"}, "'hidden_act': expected 'gelu'"),
    ("bert", "config.json", {"is_decoder": True}, "'is_decoder': expected False"),
    ("bert", "config.json", {"position_embedding_type": "relative_key"}, "expected 'absolute'"),
    ("bert", "config.json", {"architectures": ["BertForTokenClassification"]}, "expected one that"),
    ("bert-rank", "config.json", {"id2label": {"0": "a", "1": "b"}}, "2 labels: expected one"),
    ("roberta", "config.json", {"pad_token_id": 0}, "'pad_token_id': expected 1"),
    ("roberta", "config.json", {"max_position_embeddings": 2}, "expected more than 2, found 2"),
    ("mpnet", "config.json", {"relative_attention_num_buckets": 16}, "buckets': expected 32"),
    ("ernie", "config.json", {"use_task_id": True}, "'use_task_id': expected False"),
    ("electra", "config.json", {"embedding_size": 16}, "'embedding_size': expected 32, found 16"),
    ("jina-bert-v2", "config.json", {"feed_forward_type": "reglu"}, "expected 'geglu', found 're"),
    ("jina-bert-v2", "config.json", {"hidden_size": 64}, "has shape [64, 32], but"),
    ("modernbert", "config.json", {"hidden_activation": "relu"}, "expected 'gelu' or 'silu' or"),
    ("modernbert", "config.json", {"layer_types": ["full_attention"]}, "'layer_types': expected 5"),
    ("modernbert-rank", "config.json", {"classifier_pooling": "max"}, "expected 'cls' or 'mean'"),
    ("nomic_bert", "config.json", {"hidden_act": "gelu"}, "'hidden_act': expected 'silu'"),
    ("nomic_bert", "config.json", {"moe_every_n_layers": 2}, "'n_positions': expected an integer"),
    ("nomic-bert-moe", "config.json", {"num_shared_experts": 1}, "'num_shared_experts': expected"),
    ("gemma-embedding", "config.json", {"architectures": ["Gemma3ForCausalLM"]}, "one that ends"),
    ("bert", "modules.json", [{"type": "sentence_transformers.models.LSTM"}], "'sentence_trans"),
    ("bert", "modules.json", [{"type": "evil.Pooling", "path": "x"}], "module 'evil.Pooling'"),
    ("bert", "modules.json", [], "expected a module Pooling, found none"),
    ("bert", "modules.json", [POOLING, POOLING], "module Pooling after Pooling: expected Tran"),
    ("bert", "modules.json", [NORMALIZE, TRANSFORMER], "module Transformer after Normalize: expe"),
    ("bert", "1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling cls, mean: exp"),
    (
        "bert", "modules.json", [{"type": "sentence_transformers.models.Pooling", "path": "../x"}],
        "expected a folder's name, found '../x'",
    ),
    ("bert", "1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling_mode_max_tok"),
    (
        "bert", "1_Pooling/config.json",
        {"pooling_mode_mean_tokens": True, "include_prompt": False}, "'include_prompt'",
    ),
    ("bert", "sentence_bert_config.json", {"max_seq_length": -1}, "expected 1 to 2^24, found -1"),
    ("bert", "config_sentence_transformers.json", {"prompts": {"a": 1}}, "'prompts.a': expected"),
    ("bert", "config_sentence_transformers.json", {"default_prompt_name": "x"}, "expected one of"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "content", "expected"), REFUSED, ids=lambda v: str(v)[:25]
)
def test_refused(name: str, file: str, content: Any, expected: str, tmp_path: Path) -> None:
    folder = encoders.write(tmp_path / "m", name)
    if file == "config.json":
        content = encoders.config(name) | content
    write_json(folder / file, content)
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.load_encoder(folder)
    assert expected in str(caught.value)
    assert str(folder) in str(caught.value)


def test_language_model_that_was_trained_for_vectors(tmp_path: Path) -> None:
    """The vector of a text is what the head reads at its last token."""
    folder = write_decoder(tmp_path / "m", "qwen3", "model.safetensors")
    with halfbyte.load(folder) as language:
        ids = language.tokenizer.encode("Once upon a time")
        logits = language.logits(ids)[-1]
        head = language.file.tensors["output.weight"].decode()
    with pytest.raises(HalfbyteError, match="language model with pooling 'none'"):
        halfbyte.load_encoder(folder)
    pooling = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    write_json(folder / "modules.json", pooling)
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling/config.json", {"pooling_mode_lasttoken": True})
    with halfbyte.load_encoder(folder) as model:
        vectors = model.embed(["Once", "Once upon a time"])
        assert largest_difference(vectors[1] @ head.T, logits) < 1e-5
        np.testing.assert_array_equal(model.embed(["Once upon a time"])[0], vectors[1])
        assert not any("pooling" in note for note in model.notes)
    quantize_file(folder, "int8", tmp_path / "m.gguf")
    with halfbyte.load_encoder(tmp_path / "m.gguf") as model:
        assert largest_difference(model.embed(["Once upon a time"])[0], vectors[1]) < 0.1


def test_matrices_after_pooling(tmp_path: Path) -> None:
    """Modules Dense, with a bias and an activation or without; in GGUF, too."""
    folder = encoders.write(tmp_path / "m", "gemma-embedding", normalize=True)
    with halfbyte.load_encoder(folder) as plain:
        pooled = plain.embed(TEXTS, normalize=False)
    first, second = values("first", (64, 32)), values("second", (48, 64))
    bias = values("bias", (48,))
    encoders.write_dense(folder, "2_Dense", {"linear.weight": first}, "linear.Identity")
    encoders.write_dense(
        folder, "3_Dense", {"linear.weight": second, "linear.bias": bias}, "activation.Tanh"
    )
    expected = np.tanh(pooled @ first.T @ second.T + bias)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    quantize_file(folder, "fp16", tmp_path / "m.gguf", keep=[("*", "F32")])
    for path in (folder, tmp_path / "m.gguf"):
        with halfbyte.load_encoder(path) as model:
            assert model.width == 48
            assert largest_difference(model.embed(TEXTS), unit) < 1e-5
            assert model.embed([]).shape == (0, 48)
    for change, message in (
        ({"linear.weight": first.T}, r"of shape \[32, 64\]: expected 'linear.weight' \[64, 32\]"),
        ({"linear.gain": first}, "tensor 'linear.gain'"),
        ({"linear.bias": first[:, 0]}, "no tensor for 'linear.weight'"),
    ):
        encoders.write_dense(folder, "2_Dense", change, "linear.Identity", rows=64)
        with pytest.raises(HalfbyteError, match=message):
            halfbyte.load_encoder(folder)
    encoders.write_dense(folder, "2_Dense", {"linear.weight": first}, "activation.GELU")
    with pytest.raises(HalfbyteError, match="'activation_function': expected one of torch"):
        halfbyte.load_encoder(folder)
    modules = json.loads((folder / "modules.json").read_text())
    write_json(folder / "modules.json", [modules[0], modules[2], modules[1]])
    with pytest.raises(HalfbyteError, match="module Dense after Transformer: expected T"):
        halfbyte.load_encoder(folder)


def test_nomic_s_own_folder(tmp_path: Path) -> None:
    """Of the same weights under the names of its code, which is not executed."""
    config, tensors = encoders.nomic_own()
    folder = encoders.write(tmp_path / "m", "nomic_bert")
    write_json(folder / "config.json", config)
    write_safetensors(folder / "model.safetensors", tensors)
    with halfbyte.load_encoder(folder) as model:
        assert model.context == 36  # trained for fewer tokens than its scaling allows
        short = [0, 1, 3]
        found = model.embed([TEXTS[i] for i in short])
        assert largest_difference(found, encoders.expected("nomic_bert")[short]) < BOUND


def test_gate_and_up_in_two_tensors(tmp_path: Path) -> None:
    """As in llama.cpp's older files of Jina's models; in newer ones they are one."""
    file = open_model(encoders.write(tmp_path / "m", "jina-bert-v2"))
    tensors = {name: t.decode() for name, t in file.tensors.items()}
    for layer in range(2):
        whole = tensors.pop(f"blk.{layer}.ffn_up.weight")
        for name, part in zip(("gate", "up"), np.split(whole, 2), strict=True):
            tensors[f"blk.{layer}.ffn_{name}.weight"] = part
    write_gguf(tmp_path / "m.gguf", file.metadata, [tensor(name, x) for name, x in tensors.items()])
    with halfbyte.load_encoder(tmp_path / "m.gguf") as model:
        found = model.embed(TEXTS, normalize=False)
    assert largest_difference(found, encoders.expected("jina-bert-v2")) < BOUND


def test_only_the_first_layer_may_lack_a_norm(tmp_path: Path) -> None:
    for name, layer in (("modernbert", 1), ("eurobert", 0)):
        file = open_model(encoders.write(tmp_path / name, name))
        lacking = f"blk.{layer}.attn_norm.weight"
        kept = [tensor(n, t.decode()) for n, t in file.tensors.items() if n != lacking]
        write_gguf(tmp_path / "m.gguf", file.metadata, kept)
        with pytest.raises(HalfbyteError, match=rf"tensor '{lacking}': expected \[32\]"):
            halfbyte.load_encoder(tmp_path / "m.gguf")
    layers = encoders.tensors("modernbert")
    del layers["model.layers.2.attn_norm.weight"]
    write_safetensors(tmp_path / "modernbert/model.safetensors", layers)
    with pytest.raises(HalfbyteError, match=r"layer 2 has no tensor for 'attn_norm\.weight'"):
        halfbyte.load_encoder(tmp_path / "modernbert")


def test_biases_of_distances() -> None:
    """Windows hide what is farther than half of them; buckets are those of T5 for both sides."""
    slopes, learned = np.array([1, 0.5], np.float32), values("learned", (32, 2))
    rows = biases(9, window=4, slopes=slopes)
    for distance in range(-8, 9):
        seen = abs(distance) <= 2
        wanted = -slopes * abs(distance) if seen else np.full(2, -np.inf)
        np.testing.assert_array_equal(rows[:, 8 + distance], wanted)
    assert biases(9, window=4).shape == (1, 17)
    distances = np.array([0, -1, -7, -8, -11, -12, -16, -32, -64, -127, -128, -4000, 1, 8, 4000])
    expected = [0, 1, 7, 8, 8, 9, 10, 12, 14, 15, 15, 15, 17, 24, 31]
    assert buckets(distances).tolist() == expected
    rows = biases(400, learned=learned)
    np.testing.assert_array_equal(rows[:, 399 - 7], learned[7])
    np.testing.assert_array_equal(rows[:, 399 + 300], learned[31])
