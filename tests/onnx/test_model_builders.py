"""The models of tools/onnx_models: valid files that compute the networks of their papers."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from tools.get_minilm import FILES, get_minilm
from tools.onnx_models import convolution, make, minilm, save
from tools.onnx_models.weights import Stored

Array = npt.NDArray[Any]
SMALL = ("bert-small", "mobilenet-v2-small", "resnet-small", "gpt2-small")
# As the sentence-transformers' documentation gives them for this model.
SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
SIMILARITIES = {(0, 1): 0.6660, (0, 2): 0.1046, (1, 2): 0.1411}


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """All outputs of ONNX Runtime on one thread, from the feeds that the model has inputs for."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = {value.name for value in session.get_inputs()}
    return list(session.run(None, {n: v for n, v in feeds.items() if n in wanted}))


def text(batch: int, length: int, past: int = 0, seed: int = 0) -> dict[str, Array]:
    """Random tokens for any of the transformers; the past of `gpt2-small` is empty."""
    ids = np.random.default_rng(seed).integers(0, 1000, (batch, length))
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones((batch, past + length), np.int64),
        "token_type_ids": np.zeros_like(ids),
        "position_ids": np.tile(np.arange(past, past + length), (batch, 1)),
    }
    empty = np.zeros((batch, 4, 0, 16), np.float32)
    return feeds | {f"past_key_values.{i}.{k}": empty for i in (0, 1) for k in ("key", "value")}


def image(batch: int = 1) -> dict[str, Array]:
    return {"input": np.random.default_rng(0).standard_normal((batch, 3, 64, 64), np.float32)}


@cache
def plain(name: str) -> tuple[Array, ...]:
    """The outputs of a model without options."""
    return tuple(
        run(make(name), image() if name.endswith(("v2-small", "net-small")) else text(2, 7))
    )


@pytest.mark.parametrize("name", SMALL)
def test_activations_keep_their_size(name: str) -> None:
    """Activations of all layers are like a trained model's, for tests of reduced precision."""
    for output in plain(name):
        assert np.isfinite(output).all()
        assert 0.2 < output.std() < 5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bert-small", {"opset": 11, "decomposed": True}),
        ("bert-small", {"opset": 20, "gelu": "op"}),
        ("bert-small", {"opset": 13, "decomposed": True}),
        ("bert-small", {"opset": 18, "decomposed": True}),
        ("mobilenet-v2-small", {"folded": True, "opset": 13}),
        ("resnet-small", {"folded": True, "opset": 11}),
        ("gpt2-small", {"tied": True}),
        ("gpt2-small", {"opset": 11, "decomposed": True}),
    ],
)
def test_spellings_agree(name: str, options: dict[str, Any]) -> None:
    feeds = image() if name.endswith(("v2-small", "net-small")) else text(2, 7)
    model = make(name, **options)
    assert [i.version for i in model.opset_import] == [options.get("opset", 17)]
    for actual, expected in zip(run(model, feeds), plain(name), strict=True):
        np.testing.assert_allclose(actual, expected, atol=2e-5 * np.abs(expected).max())


def test_spellings_differ() -> None:
    """Each option changes the operators as documented."""

    def operators(name: str, **options: Any) -> set[str]:
        return {node.op_type for node in make(name, **options).graph.node}

    assert {"LayerNormalization", "Erf"} <= operators("bert-small")
    assert {"Gelu"} <= operators("bert-small", gelu="op", opset=20)
    assert "LayerNormalization" not in operators("bert-small", decomposed=True)
    assert "BatchNormalization" in operators("mobilenet-v2-small")
    assert "BatchNormalization" not in operators("mobilenet-v2-small", folded=True)


@pytest.mark.parametrize(("pooled", "output"), [(False, 0), (True, 0), (False, 1), (True, 1)])
def test_bert_ignores_padding(pooled: bool, output: int) -> None:
    """A sentence has the same outputs in a batch with a longer one, unless the mask changes."""
    model = make("bert-small", pooled=pooled, pooler=True)
    single = text(1, 5)
    padded = {n: np.pad(v, ((0, 1), (0, 4))) for n, v in single.items() if v.ndim == 2}
    padded["attention_mask"][1] = 1
    expected, actual = run(model, single)[output], run(model, padded)[output]
    actual = actual[:1, :5] if actual.ndim == 3 else actual[:1]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    padded["attention_mask"][0, 5] = 1
    assert (
        np.abs(run(model, padded)[output][0].reshape(-1)[:64] - expected.reshape(-1)[:64]).max()
        > 0.01
    )


def test_pooled_is_the_mean_of_the_hidden_states() -> None:
    feeds = text(2, 6)
    feeds["attention_mask"][1, 4:] = 0
    (hidden,) = run(make("bert-small"), feeds)
    (actual,) = run(make("bert-small", pooled=True), feeds)
    expected = np.stack([hidden[0].mean(0), hidden[1, :4].mean(0)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("past", [1, 4])
def test_gpt2_continues_from_its_past(past: int) -> None:
    """Two runs, the second with the first one's keys and values, equal a single run."""
    model, whole = make("gpt2-small"), text(2, 7)
    expected = run(model, whole)
    first = {n: v[:, :past] if v.ndim == 2 else v for n, v in whole.items()}
    start = run(model, first)
    rest = {n: v[:, past:] for n, v in whole.items() if v.ndim == 2}
    rest["attention_mask"] = whole["attention_mask"]
    names = [f"past_key_values.{i}.{kind}" for i in (0, 1) for kind in ("key", "value")]
    actual = run(model, rest | dict(zip(names, start[1:], strict=True)))
    np.testing.assert_allclose(actual[0], expected[0][:, past:], atol=1e-4)
    for now, then in zip(actual[1:], expected[1:], strict=True):
        np.testing.assert_allclose(now, then, atol=1e-4)


@pytest.mark.parametrize("name", ["mobilenet-v2-small", "resnet-small"])
def test_images_do_not_mix(name: str) -> None:
    both, (single,) = run(make(name), image(2))[0], run(make(name), image())
    np.testing.assert_allclose(both[:1], single, atol=1e-4)
    assert np.abs(both[1] - both[0]).max() > 0.01


def test_statistics_of_a_rectified_map() -> None:
    """They are the mean and variance of normally distributed numbers after a ReLU."""
    net = convolution.Network("x", 8, 17, 0, folded=False)
    mean, variance = np.array([0.0, 0.7, -2.0]), np.array([1.0, 4.0, 9.0])
    rectified = net.relu(convolution.Map("input", mean, variance))
    numbers = np.random.default_rng(0).standard_normal((200_000, 3)) * variance**0.5 + mean
    np.testing.assert_allclose(rectified.mean, np.maximum(numbers, 0).mean(0), rtol=0.02)
    np.testing.assert_allclose(rectified.variance, np.maximum(numbers, 0).var(0), rtol=0.03)


def test_full_sizes_have_as_many_parameters_as_published() -> None:
    """Counted without the running statistics and the unused table of position numbers."""

    def count(name: str) -> int:
        return sum(
            int(np.prod(tensor.dims))
            for tensor in make(name).graph.initializer
            if not tensor.name.endswith(("running_mean", "running_var", "position_ids"))
        )

    assert count("mobilenet-v2") == 3_504_872
    assert count("resnet-34") == 21_797_672


def test_weights_beside_the_file(tmp_path: Path) -> None:
    """A file that is written again does not grow."""
    path, model = tmp_path / "small.onnx", make("bert-small")
    for _ in range(2):
        save(make("bert-small"), path, external=True)
    assert path.stat().st_size < 100_000
    read = onnx.load(path)
    assert [t.raw_data for t in read.graph.initializer] == [
        t.raw_data for t in model.graph.initializer
    ]
    size = (tmp_path / "small.onnx.data").stat().st_size
    assert size < 1.2 * sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def test_command_writes(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "model.onnx"
    command = [sys.executable, "-m", "tools.onnx_models", "bert-small", "-o", str(path)]
    subprocess.run([*command, "-s", "opset=20", "-s", "gelu=op"], check=True, cwd=repository)
    assert onnx.load(path) == make("bert-small", opset=20, gelu="op")


def test_command_compares(repository: Path) -> None:
    """There is a row for each set of sizes, with the output that differs most."""
    command = [sys.executable, "-m", "tools.onnx_models.validate"]
    done = subprocess.run(
        [*command, "bert-small", "gpt2-small"], capture_output=True, text=True, cwd=repository,
        check=True,
    )  # fmt: skip
    heads, *rows = done.stdout.splitlines()
    assert heads.split() == [
        "model", "inputs", "furthest", "output", "outputs", "max", "abs", "largest", "of", "it"
    ]  # fmt: skip
    assert [row.split()[0] for row in rows] == ["bert-small", "gpt2-small", "gpt2-small"]
    assert "past_sequence=100" in rows[2]
    for row in rows:
        *_, error, largest, share, verdict = row.split()
        assert verdict == "pass"
        assert 0 < float(share) < 1e-5
        assert float(error) / float(largest) == pytest.approx(float(share), rel=0.1)
    done = subprocess.run(
        [*command, "bart"], capture_output=True, text=True, cwd=repository, check=False
    )
    assert done.returncode == 2
    assert "found bart" in done.stderr


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected options out of .*heads.*; found hands"):
        make("bert-small", hands=2)
    with pytest.raises(ValueError, match=r"expected a model out of minilm, .*; found 'bart'"):
        make("bart")
    with pytest.raises(ValueError, match="opset: expected 11 to 22, found 9"):
        make("bert-small", opset=9)
    with pytest.raises(ValueError, match="'a': expected shape"):
        Stored({"a": np.zeros(2)}).take("a", (3,))
    with pytest.raises(ValueError, match="'b': missing"):
        Stored({"a": np.zeros(2)}).take("b", (3,))


@pytest.fixture(scope="module")
def folder() -> Path:
    return get_minilm()


def test_minilm_embeds_as_documented(folder: Path) -> None:
    (embeddings,) = run(minilm.build(folder=folder), minilm.tokens(SENTENCES, folder))
    assert embeddings.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    for (a, b), similarity in SIMILARITIES.items():
        assert embeddings[a] @ embeddings[b] == pytest.approx(similarity, abs=6e-5)


def test_minilm_folder_is_checked(folder: Path, tmp_path: Path) -> None:
    """A changed file is fetched again."""
    for name in FILES:
        (tmp_path / name).symlink_to(folder / name)
    assert get_minilm(tmp_path) == tmp_path
    assert (tmp_path / "vocab.txt").is_symlink()
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.txt").write_text("[PAD]")
    assert get_minilm(tmp_path) == tmp_path
    assert (tmp_path / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
