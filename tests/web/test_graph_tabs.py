"""The Python side of the tabs for ONNX models: passages, inputs, outputs, requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper
from tests.formats.folders import write_json
from tests.support import aio
from tests.support.pdf_files import written
from tests.text.encoders import encoders
from tests.text.tokenizers.hugging_face import word_piece
from tools.onnx_models import make

from halfbyte import load_encoder
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session.metadata import NodeArg
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_bytes
from halfbyte.web.graphs import display, feeds
from halfbyte.web.graphs.encoder import LENGTHS, batches
from halfbyte.web.graphs.handler import Handler
from halfbyte.web.graphs.naming import for_classes
from halfbyte.web.graphs.passages import MAX_LENGTH, passages
from halfbyte.web.graphs.pictures import layout, picture_array
from halfbyte.web.graphs.side_files import labels
from halfbyte.web.graphs.sounds import sound_array

TEXT = """\
Opening hours

The museum opens at 9 a.m. on weekdays. Dr. J. Smith posted: "Come early!" Then he left.
Prices rose by 3.2 % in 2020, e.g. on p. 5. Wow 😀! No. They fell later.

- milk and eggs
2. bread

This paragraph was wrapped by an editor at a column that is quite wide, you see,
and goes on here. 今日は天気がいい。明日は雨です。
"""
PASSAGES = [
    "Opening hours\n\nThe museum opens at 9 a.m. on weekdays.",
    'Dr. J. Smith posted: "Come early!"',
    "Then he left.",
    "Prices rose by 3.2 % in 2020, e.g. on p. 5. Wow 😀! No.",
    "They fell later.",
    "- milk and eggs",
    "2. bread",
    "This paragraph was wrapped by an editor at a column that is quite wide, you see,\nand goes on "
    "here.",
    "今日は天気がいい。",
    "明日は雨です。",
]


def test_passages() -> None:
    assert [TEXT[start:end] for start, end in passages(TEXT)] == PASSAGES


def test_long_sentences_are_cut_between_words() -> None:
    text = "One clause that goes on; " * 30 + "and\n" + "word " * 200 + "x" * 1000
    parts = [text[start:end] for start, end in passages(text)]
    assert max(map(len, parts)) <= MAX_LENGTH
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert parts[0].endswith(";")


@pytest.mark.parametrize(
    "text", ["." * 200_000, "A. b " * 40_000, "\n" * 200_000, "- " * 100_000, "\ud800. " * 9, " "]
)
def test_unusual_texts_are_cut_in_linear_time(text: str) -> None:
    start = time.process_time()
    spans = passages(text)
    assert time.process_time() - start < 10
    assert all(text[a:b].strip() == text[a:b] != "" for a, b in spans)


def test_batches_have_few_shapes() -> None:
    sizes = [3, 40, 12, 500, 17, 16, 33, 5, 9, 2, 7, 11, 4]
    actual = list(batches(sizes))
    assert sorted(row for rows, _, _ in actual for row in rows) == list(range(len(sizes)))
    for rows, length, batch in actual:
        assert len(rows) <= batch
        assert all(min(sizes[row], LENGTHS[-1]) <= length for row in rows)
    assert {(length, batch) for _, length, batch in actual} == {(16, 8), (32, 4), (64, 2), (128, 1)}
    assert list(batches([20])) == [([0], 32, 1)]
    assert list(batches([20, 3], [64], 2)) == [([0, 1], 64, 2)]


# ---- inputs --------------------------------------------------------------------------------------

PIXELS = np.array([[[255, 0, 0, 255], [0, 255, 0, 9]], [[0, 0, 255, 0], [51, 102, 204, 1]]], "u1")


def test_pictures() -> None:
    """Pixels follow the formulas; opacity is ignored."""
    asked = {"height": 2, "width": 2, "scale": "signed"}
    form = layout([1, 3, "h", None])
    assert form
    assert form.shape == [1, 3, 224, 224]
    x = picture_array(PIXELS.tobytes(), form, np.float32, asked)
    assert x.shape == (1, 3, 2, 2)
    np.testing.assert_allclose(x[0, :, 1, 1], [-0.6, -0.2, 0.6], atol=1e-6)
    last = layout([8, 8, 3])
    assert last
    asked["scale"] = "imagenet"
    x = picture_array(PIXELS.tobytes(), last, np.float16, asked)
    assert x.shape == (2, 2, 3)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(x[0, 1], (np.array([0, 1, 0]) - mean) / deviation, atol=2e-3)
    grey = layout([1, 1, 28, 28])
    assert grey
    x = picture_array(PIXELS.tobytes(), grey, np.uint8, {**asked, "invert": True})
    assert x[0, 0, 0].tolist() == [255 - 76, 255 - 150]
    with pytest.raises(HalfbyteError, match="16 bytes of pixels: expected 3 x 2 x 4"):
        picture_array(PIXELS.tobytes(), grey, np.uint8, {**asked, "height": 3})


@pytest.mark.parametrize(
    "shape", [[2, 3, 8, 8], [1, 5, 8, 8], [3, 4], [], [1, 384], [1, 3, 4, 2], [1, None, 8, 8]]
)
def test_shapes_that_are_not_pictures(shape: list[int | str | None]) -> None:
    assert layout(shape) is None


def test_pictures_and_sounds_by_name_and_shape() -> None:
    def described(name: str, *shape: int | str | None) -> dict[str, Any]:
        return feeds.describe(NodeArg(name, list(shape), "tensor(float)"), imagenet=True)

    hub = described("pixel_values", "batch", "channels", "height", "width")
    assert (hub["role"], hub["shape"], hub["scale"]) == ("picture", [1, 3, 224, 224], "imagenet")
    assert described("x", 1, 224, 224, 3)["scale"] == "signed"
    assert described("x", "batch", "channels", "height", "width")["role"] == "numbers"
    sounds = [
        ("x", 15600),
        ("waveform", None),
        ("audio", "batch", "n"),
        ("input_values", 1, 1, "n"),
    ]
    assert {described(*one)["role"] for one in sounds} == {"sound"}
    others = [("x", "n"), ("x", 1, 768), ("waveform", 2, "n"), ("audio", 2, 1, "n"), ("audio",)]
    assert {described(*one)["role"] for one in others} == {"numbers"}


def test_a_sound_is_cut_or_padded() -> None:
    sound = np.linspace(-1, 1, 5, dtype=np.float32)
    assert sound_array(sound.tobytes(), [1, None], np.float64).tolist() == [sound.tolist()]
    assert sound_array(sound.tobytes(), [7], np.float32).tolist() == [*sound.tolist(), 0, 0]
    assert sound_array(sound.tobytes(), ["n", 1, 3], np.float32).tolist() == [[sound[:3].tolist()]]
    with pytest.raises(HalfbyteError, match="0 samples: expected 1 to"):
        sound_array(b"", [None], np.float32)


def test_names_of_classes() -> None:
    assert for_classes(["a", "b"], 2) == ["a", "b"]
    assert for_classes(["a", "b"], 3) == ("background", "a", "b")
    assert [for_classes(["a", "b"], 4), for_classes([], 1)] == [(), ()]


def test_numbers() -> None:
    arg = NodeArg("x", ["n", 3], "tensor(int32)")
    assert feeds.describe(arg)["role"] == "numbers"
    assert feeds.describe(arg)["shape"] == [1, 3]
    asked = {"role": "numbers", "shape": [2, 3], "fill": "values", "text": "[[1, 2, 3],\n [4;5 6]]"}
    actual = feeds.feeds([arg], {"x": asked}, {}, None)["x"]
    assert (actual.dtype, actual.tolist()) == (np.int32, [[1, 2, 3], [4, 5, 6]])
    count = feeds.number_array(arg, {**asked, "fill": "count"})
    assert count.tolist() == [[0, 1, 2], [3, 4, 5]]
    ones = feeds.number_array(NodeArg("x", [], "tensor(bool)"), {"shape": [], "fill": "ones"})
    assert ones.shape == ()
    assert ones


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "1 2"}, "input 'x': 2 values: expected 6"),
        ({"text": "1 2 3 4 5 six"}, "input 'x': expected 6 numbers of type float32"),
        ({"shape": [2]}, r"input 'x': shape \[2\]: expected \['n', 3\]"),
        ({"shape": [1 << 30, 3]}, "input 'x': .* takes 12885 MB: expected at most 537 MB"),
        ({"role": "none"}, r"input 'x': this page cannot fill inputs of type tensor\(float\)"),
        ({"role": "picture"}, "input 'x': choose a picture"),
    ],
)
def test_numbers_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    arg = NodeArg("x", ["n", 3], "tensor(float)")
    asked = {"role": "numbers", "shape": [2, 3], "fill": "values", "text": "1 2 3 4 5 6", **change}
    with pytest.raises(HalfbyteError, match=message):
        feeds.feeds([arg], {"x": asked}, {}, None)


def test_a_text_makes_all_inputs_of_tokens() -> None:
    names = ["input_ids", "attention_mask", "token_type_ids", "position_ids"]
    args = [NodeArg(name, [1, 5], "tensor(int64)") for name in names]
    roles = {arg.name: {"role": feeds.describe(arg)["role"]} for arg in args}
    roles["input_ids"]["text"] = "7, 8 9"
    actual = feeds.feeds(args, roles, {}, None)
    assert [actual[name].tolist() for name in names] == [
        [[7, 8, 9, 0, 0]], [[1, 1, 1, 0, 0]], [[0, 0, 0, 0, 0]], [[0, 1, 2, 3, 4]],
    ]  # fmt: skip
    with pytest.raises(HalfbyteError, match=r"tokenizer\.json"):
        feeds.feeds(args, {**roles, "input_ids": {"role": "ids", "text": "a text"}}, {}, None)


# ---- outputs -------------------------------------------------------------------------------------


def test_best_classes() -> None:
    logits = np.array([[0, 2, 1, -1, 0.5, 3]], np.float32)
    actual = display.describe("y", logits, list("abcdef"))
    assert [one["name"] for one in actual["best"]] == ["f", "b", "c", "e", "a"]
    assert actual["softmax"]
    expected = np.exp(3) / np.exp(logits).sum()
    assert actual["best"][0]["share"] == pytest.approx(expected, rel=1e-6)
    shares = display.describe("y", np.array([0.1, 0.9]))
    assert not shares["softmax"]
    assert [(o["name"], o["share"]) for o in shares["best"]] == [("class 1", 0.9), ("class 0", 0.1)]
    of_map = display.describe("y", [{"cat": 0.25, "dog": 0.75}])
    assert [o["name"] for o in of_map["best"]] == ["dog", "cat"]


@pytest.mark.parametrize(
    "value",
    [np.zeros((2, 5)), np.array([[np.nan, 1]]), np.zeros((1, 5), int), [1, 2], None, np.zeros(())],
)
def test_other_outputs_have_no_classes(value: Any) -> None:
    actual = display.describe("y", value)
    assert "best" not in actual
    json.dumps(actual)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbfcat\r\n\ndog\n", ["cat", "dog"]),
        (b'["cat", "dog"]', ["cat", "dog"]),
        (b'{"1": "dog", "0": ["n02", "cat"]}', ["cat", "dog"]),
    ],
)
def test_labels(data: bytes, expected: list[str]) -> None:
    assert labels(data) == expected


# ---- the handler ---------------------------------------------------------------------------------


class File:
    """A file chosen in the page."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data


class Visit:
    """A handler of requests, and the messages that it posted."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.handler = Handler(lambda text: self.posted.append(json.loads(text)), read=self._read)

    async def _read(
        self, file: File, progress: Callable[[int, int], None], place: Any = None
    ) -> npt.NDArray[Any]:
        assert (place is not None) == file.name.endswith(".onnx")
        progress(len(file.data), len(file.data))
        return np.frombuffer(file.data, np.uint8)

    def ask(self, what: str, files: Any = None, **content: Any) -> dict[str, Any]:
        """Handle a request; returns the last message posted."""
        aio.run(self.handler.handle(json.dumps({"ask": what, **content}), files))
        return self.posted[-1]


@pytest.fixture(scope="module")
def encoder() -> list[File]:
    """The files of a small random encoder whose tokens are letters."""
    letters = [mark + chr(code) for code in range(33, 127) for mark in ("", "##")]
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters])
    words = word_piece({piece: i for i, piece in enumerate(pieces)}).to_str().encode()
    model = make("bert-small", pooled=True).SerializeToString()
    return [File("tokenizer.json", words), File("small.onnx", model)]


def test_a_search(encoder: list[File]) -> None:
    """A passage is nearest to itself; the text is read once."""
    visit = Visit()
    assert visit.ask("encoder", encoder[:1])["text"].startswith("Now drop its model (.onnx)")
    facts = visit.ask("encoder", encoder[1:])
    assert (facts["event"], facts["name"]) == ("encoder", "small.onnx")
    text = "The cat sleeps.\n\nA dog barks at 3 a.m. every day. It rains in the mountains."
    actual = visit.ask("search", text=text, question="A dog barks at 3 a.m. every day.")
    assert actual["event"] == "found"
    assert actual["hits"][0] == {"passage": 1, "score": pytest.approx(1, abs=1e-3)}
    assert actual["threads"] >= 1
    [read] = [message for message in visit.posted if message["event"] == "read"]
    assert "".join(read["pieces"]) == text
    visit.ask("search", text=text, question="The cat sleeps.")
    assert sum(message["event"] == "read" for message in visit.posted) == 1
    assert visit.posted[-1]["hits"][0]["passage"] == 0


def test_embeddings_are_those_of_the_whole_sentence(encoder: list[File]) -> None:
    """They do not depend on padding and batches; the mean of hidden states is the pooled output."""
    hidden = File("hidden.onnx", make("bert-small").SerializeToString())
    vectors = []
    texts = ["short", "a text of some more letters", "x" * 60, "y"]
    for model in (encoder[1], hidden):
        visit = Visit()
        visit.ask("encoder", [encoder[0], model])
        assert visit.handler._search
        coder = visit.handler._search.encoder
        vectors.append(aio.run(coder.embed(texts, lambda done: True)).vectors)
        single = aio.run(coder.embed(texts[1:2], lambda done: True)).vectors
        np.testing.assert_allclose(single[0], vectors[-1][1], atol=1e-5)
    np.testing.assert_allclose(*vectors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, atol=1e-5)


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., File]:
    """Makes a small encoder's GGUF file with this in its modules.json."""

    def make_file(name: str, *prompts: str) -> File:
        folder = encoders.write(tmp_path_factory.mktemp("encoder"), name)
        if prompts:
            told = {"prompts": {n: f"{n} " for n in prompts}, "default_prompt_name": prompts[0]}
            write_json(folder / "config_sentence_transformers.json", told)
        quantize_file(folder, "int8", folder / f"{name}.gguf")
        return File(f"{name}.gguf", (folder / f"{name}.gguf").read_bytes())

    return make_file


@pytest.mark.parametrize(
    ("name", "named", "prompts"),
    [
        ("nomic_bert", [], ["search_query: ", "search_document: "]),
        ("modernbert", [], ["", ""]),
        ("bert", ["w1", "passage", "query"], ["query ", "passage "]),
        ("bert", ["w1", "query"], ["query ", "w1 "]),
    ],
)
def test_an_encoder_in_gguf(
    small_gguf: Callable[..., File], name: str, named: list[str], prompts: list[str]
) -> None:
    """Prompts are the file's or the architecture's; scores are those of `load_encoder`."""
    visit, file = Visit(), small_gguf(name, *named)
    facts = visit.ask("encoder", [file])
    assert (facts["event"], facts["name"], facts["prompts"]) == ("encoder", file.name, prompts)
    assert facts["tokens"] == len(encoders.TOKENS)
    assert facts["memory"]["weights"] > 0
    passages = ["w1 w2 w3 w4 w5 w6.", "w7 w8 w9 w10 w11.", "w7 w8 w9 w12 w13.", "w21 w22 w23 w24."]
    question = "w7 w8 w9 w10"
    actual = visit.ask("search", text="\n\n".join(passages), question=question, prompts=prompts)
    with load_encoder(open_bytes(file.data, file.name)) as model:
        vectors = model.embed([prompts[1] + text for text in passages], prompt="", normalize=True)
        [asked] = model.embed([question], prompt=prompts[0], normalize=True)
    scores = vectors @ asked
    order = np.argsort(-scores)
    assert [hit["passage"] for hit in actual["hits"]] == order.tolist()
    np.testing.assert_allclose([hit["score"] for hit in actual["hits"]], scores[order], atol=1e-4)
    visit.ask("search", text="\n\n".join(passages), question=question, prompts=[prompts[0], "w9 "])
    assert sum(message["event"] == "read" for message in visit.posted) == 2


def test_models_for_something_else(
    small_gguf: Callable[..., File], storyteller: Path, tmp_path: Path
) -> None:
    """One that writes goes to the other tab, and one that scores pairs is refused."""
    visit = Visit()
    quantize_file(storyteller, "int4", tmp_path / "story.gguf")
    posted = visit.ask("encoder", [File("story.gguf", (tmp_path / "story.gguf").read_bytes())])
    assert posted["event"] == "writes"
    assert "expected a model that turns texts into vectors" in posted["text"]
    posted = visit.ask("encoder", [small_gguf("bert-rank")])
    assert (posted["event"], posted["text"].split(":")[0]) == ("error", "bert-rank.gguf")
    assert "scores pairs" in posted["text"]


def test_a_search_is_stopped(encoder: list[File]) -> None:
    visit = Visit()
    visit.ask("encoder", encoder)
    text = "A sentence of a few words. " * 300

    async def go() -> None:
        task = asyncio.create_task(
            visit.handler.handle(json.dumps({"ask": "search", "text": text, "question": "a"}))
        )
        while not any(m["event"] == "progress" and m.get("done") == 0 for m in visit.posted):
            await asyncio.sleep(0)
        await visit.handler.handle('{"ask": "search", "text": "", "question": ""}')
        await visit.handler.handle('{"ask": "stop"}')
        await task

    aio.run(go())
    assert [m["text"] for m in visit.posted if m["event"] == "error"] == [
        "A model is already running: stop it first."
    ]
    assert visit.posted[-1]["event"] == "stopped"


def classifier() -> bytes:
    """scores [1, 3] of a picture [1, 3, 4, 4]: how red, green and blue it is."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes, "colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 5, 5])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("stopped", "expected"),
    [
        ("", {"search": "found", "onnx": "model"}),
        ("onnx", {"search": "found", "onnx": "stopped"}),  # which waits
        ("search", {"search": "stopped", "onnx": "model"}),
    ],
)
def test_views_take_turns(encoder: list[File], stopped: str, expected: dict[str, str]) -> None:
    """One that waits is answered in the end; what one view stops is its own."""
    visit = Visit()
    visit.ask("encoder", encoder)

    async def go() -> None:
        asked = {"ask": "search", "text": "A sentence of a few words. " * 100, "question": "a"}
        search = asyncio.create_task(visit.handler.handle(json.dumps(asked)))
        await asyncio.sleep(0)
        opening = visit.handler.handle('{"ask": "open"}', [File("colours.onnx", classifier())])
        waiting = asyncio.create_task(opening)
        await asyncio.sleep(0)
        if stopped:
            await visit.handler.handle(json.dumps({"ask": "stop", "view": stopped}))
        await asyncio.gather(search, waiting)

    aio.run(go())
    assert {message["view"]: message["event"] for message in visit.posted} == expected


def test_a_pdf_without_text() -> None:
    """Pages that were scanned are pictures; the text that was there before stays."""
    posted = Visit().ask("pdf", [File("scan.pdf", written("", " "))])
    assert posted["event"] == "error"
    assert posted["text"] == "scan.pdf: has no text, perhaps only pictures of its pages"


def test_any_model() -> None:
    visit = Visit()
    files = [File("names.txt", b"red\ngreen\nblue"), File("colours.onnx", classifier())]
    model = visit.ask("open", files)
    assert (model["labels"], model["tokenizer"], model["fresh"]) == (3, False, True)
    assert [one["role"] for one in model["inputs"]] == ["picture"]
    green = np.tile(np.array([20, 200, 90, 255], np.uint8), (5, 5, 1)).tobytes()
    wish = {"role": "picture", "height": 5, "width": 5, "scale": "unit"}
    result = visit.ask("run", {"image": green}, inputs={"image": wish})
    assert [one["name"] for one in result["outputs"][0]["best"]] == ["green", "blue", "red"]
    assert result["fed"] == ["image [1, 3, 5, 5]"]
    assert 0 < result["kernels"] <= 1
    assert min(result["seconds"]) > 0
    assert result["memory"]["the model's file"] == len(files[1].data)
    error = visit.ask("run", inputs={"image": wish})
    assert error["text"] == "input 'image': choose a picture, or drop one"


@pytest.mark.parametrize(
    ("ask", "file", "message"),
    [
        ("open", File("x.onnx", b"hello"), "x.onnx: not an ONNX model: 5 bytes"),
        ("open", File("x.onnx", b""), "x.onnx: "),
        ("open", File("x.onnx", classifier()[:-20]), "x.onnx: "),
        ("open", File("names.txt", b"red"), "There is no model yet: drop an ONNX file first."),
        ("open", File("t.json", b'{"a": 1}'), "t.json: "),
        ("encoder", File("tokenizer.json", b"{"), "tokenizer.json: "),
    ],
)
def test_invalid_files(ask: str, file: File, message: str) -> None:
    posted = Visit().ask(ask, [file])
    assert posted["event"] == "error"
    assert posted["text"].startswith(message)
    assert "/" not in posted["text"].replace("tensors/", "")


def test_a_model_that_is_not_an_encoder(encoder: list[File]) -> None:
    visit = Visit()
    posted = visit.ask("encoder", [encoder[0], File("colours.onnx", classifier())])
    assert posted["text"].startswith("colours.onnx: its inputs are 'image': expected a sentence")
    assert visit.ask("encoder", encoder)["event"] == "encoder"


def test_a_missing_encoder_is_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from halfbyte.web import site

    monkeypatch.setenv("HALFBYTE_MINILM", str(tmp_path))
    assert site._encoder_files() == {}
    for name in site.ENCODER:
        (tmp_path / name).write_bytes(b"x")
    assert list(site._encoder_files()) == [f"models/{name}" for name in site.ENCODER]
