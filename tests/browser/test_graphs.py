"""The page's tabs for ONNX models: pictures and numbers through any model, search by meaning."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Browser, expect
from tests.browser.conftest import tool
from tests.browser.visitor import READY, User
from tests.http_server import in_thread
from tests.tokenizers.hugging_face import word_piece
from tools.onnx_models import make

from halfbyte.web.server import Server
from halfbyte.web.site import ENCODER, Site

COLOURS = {"red": (230, 20, 10), "green": (10, 210, 60), "blue": (0, 40, 250)}
SIDE = 12  # pixels of the classifier's pictures
PARAPHRASES = {
    "What can we do with the kids on a rainy day?": "In bad weather families like the covered",
    "Was the town ever destroyed?": "In the flood of 1784 the lower town stood under water",
}

DROP = """
([name, bytes, type]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, { type }));
  const options = { dataTransfer: data, bubbles: true, cancelable: true };
  document.body.dispatchEvent(new DragEvent("drop", options));
}
"""


def png(rows: np.ndarray) -> bytes:  # type: ignore[type-arg]
    """A picture [height, width, 3] as a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    height, width, _ = rows.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in rows.astype(np.uint8))
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def classifier(last: bool = False) -> bytes:
    """logits [1, 3] of a picture's middle: twenty times how red, green and blue it is."""
    order = [0, 3, 1, 2] if last else [0, 1, 2, 3]
    dims: list[int | str] = [1, SIDE, SIDE, 3] if last else [1, 3, SIDE, SIDE]
    nodes = [
        helper.make_node("Transpose", ["image"], ["first"], perm=order),
        helper.make_node("GlobalAveragePool", ["first"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]  # fmt: skip
    weights = numpy_helper.from_array(np.eye(3, dtype=np.float32) * 20, "weights")
    graph = helper.make_graph(
        nodes, "colours", [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 3])], [weights],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier, its labels, pictures; a small random encoder and its tokenizer."""
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "colours.onnx").write_bytes(classifier())
    (folder / "last.onnx").write_bytes(classifier(last=True))
    (folder / "colours.txt").write_text("\n".join(COLOURS), encoding="utf-8")
    for name, colour in COLOURS.items():  # wide, with margins that are cropped
        rows = np.full((40, 100, 3), 128, np.uint8)
        rows[:, 30:70] = colour
        (folder / f"{name}.png").write_bytes(png(rows))
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    letters = [mark + chr(code) for code in range(33, 127) for mark in ("", "##")]
    words = word_piece({piece: i for i, piece in enumerate([*pieces, *letters])})
    (folder / "tokenizer.json").write_bytes(words.to_str().encode())
    model = make("bert-small", pooled=True)
    (folder / "small.onnx").write_bytes(model.SerializeToString())
    return folder


@pytest.fixture(scope="module")
def bare(site: Site) -> Site:
    """A site without an encoder, whatever is in the cache."""
    return with_encoder(site, {})


def with_encoder(site: Site, encoder: dict[str, Path]) -> Site:
    """The site with this encoder (model and tokenizer), or without one."""
    found = {n: c for n, c in site.files.items() if n.removeprefix("models/") not in ENCODER}
    settings = found["site.json"]
    assert isinstance(settings, bytes)
    added = {f"models/{path.name}": path for path in encoder.values()}
    names = dict(zip(encoder, added, strict=True))
    told = json.dumps({**json.loads(settings), "encoder": names}).encode()
    return Site({**found, **added, "site.json": told})


class Visitor(User):
    """Somebody at the tabs for ONNX models."""

    def give(self, view: str, *paths: Path) -> None:
        """Choose files, and wait for what comes of them."""
        self.page.set_input_files(f"#{view}-file", paths)
        expect(self.page.locator(f"#{view}-wait")).to_be_hidden(timeout=READY)

    def run_model(self) -> list[str]:
        """Run, and give the best classes."""
        self.page.click("#onnx-run")
        expect(self.page.locator("#outputs")).to_have_attribute("aria-busy", "false", timeout=READY)
        return self.page.locator(".best th").all_inner_texts()

    def search(self, question: str) -> list[str]:
        """Search, and give the nearest passages."""
        self.page.fill("#question", question)
        self.page.click("#search-run")
        expect(self.page.locator("#search-run")).to_be_enabled(timeout=READY)
        return self.page.locator("#hits .text").all_inner_texts()

    def problem(self, view: str) -> str:
        expect(self.page.locator(f"#{view}-problem")).to_be_visible(timeout=READY)
        return self.get(f"{view}-problem")


@pytest.fixture(scope="module")
def visitor(browser: Browser, bare: Site) -> Iterator[Visitor]:
    with in_thread(Server(bare)) as server:
        context = browser.new_context()
        made = Visitor(context, server.address)
        made.ready()
        yield made
        assert made.failures == []
        context.close()


def test_nothing_of_it_is_fetched_before_it_is_asked_for(visitor: Visitor) -> None:
    names = [url.rsplit("/", 1)[-1] for url in visitor.requests]
    assert not {"graphs.mjs", "search.mjs", "onnx.mjs"} & set(names)
    wheels = [url for url in visitor.requests if url.endswith(".whl") and "halfbyte" in url]
    assert ["/text/" in url for url in wheels] == [True]


def test_the_tabs_by_keyboard(visitor: Visitor) -> None:
    """Arrow keys move; one tab stop for all; each shows its panel; the address remembers."""
    page = visitor.page
    page.focus("#language-tab")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.id"))
        shown = page.locator("[role=tabpanel].panel:visible").get_attribute("id")
        assert seen[-1].removesuffix("-tab") == (shown or "").removesuffix("-panel")
        assert page.locator(f"#{seen[-1]}").get_attribute("aria-selected") == "true"
        assert page.locator(".tabs [tabindex='0']").count() == 1
    names = ["search", "onnx", "language", "onnx", "language", "onnx"]
    assert seen == [f"{name}-tab" for name in names]
    assert page.evaluate("location.hash") == "#onnx"


def test_a_picture_is_classified(visitor: Visitor, files: Path) -> None:
    """With both orders of channels, by names; what is around the middle is cropped."""
    visitor.page.click("#onnx-tab")
    for model in ("colours.onnx", "last.onnx"):
        visitor.give("onnx", files / "colours.txt", files / model)
        for name in COLOURS:
            content = list((files / f"{name}.png").read_bytes())
            visitor.page.evaluate(DROP, [f"{name}.png", content, "image/png"])
            expect(visitor.page.locator("#inputs canvas")).to_be_visible()
            assert visitor.run_model()[0] == name
        share = visitor.page.locator(".best td").first.inner_text()
        assert float(share.removesuffix(" %")) > 90
    for name in ("run-time", "first-time", "kernel-share"):
        assert float(visitor.get(name)) >= 0
    side = visitor.page.locator("#onnx-side").inner_text()
    assert "last.onnx" in side
    assert "WebAssembly, relaxed SIMD, 1 thread" in side
    assert "activations" in side


def test_values_are_typed(visitor: Visitor, files: Path) -> None:
    visitor.page.click("#onnx-tab")
    visitor.give("onnx", files / "colours.onnx")
    visitor.page.locator("#inputs select").first.select_option("values")
    values = " ".join(str(v) for v in [0] * SIDE**2 + [0] * SIDE**2 + [0.5] * SIDE**2)
    visitor.page.locator("#inputs textarea").fill(values)
    assert visitor.run_model()[0] == "class 2"
    assert "0, 0, 10" in visitor.page.locator(".values").inner_text()
    visitor.page.locator("#inputs textarea").fill("1 2 three")
    visitor.page.click("#onnx-run")
    assert visitor.problem("onnx") == f"input 'image': 3 values: expected {3 * SIDE**2}"


def test_hostile_files(visitor: Visitor, files: Path) -> None:
    """Each is refused in words, and the model that was there goes on."""
    visitor.page.click("#onnx-tab")
    visitor.give("onnx", files / "colours.onnx", files / "colours.txt")
    good = (files / "colours.onnx").read_bytes()
    for content in (
        b"",
        b"\x08\x09" + b"\xff" * 50,
        good[:-30],
        good.replace(b"Flatten", b"Flotten"),
    ):
        visitor.page.evaluate(DROP, ["bad.onnx", list(content), ""])
        expect(visitor.page.locator("#onnx-problem")).to_contain_text("bad.onnx", timeout=READY)
        assert "Unexpectedly" not in visitor.problem("onnx")
        expect(visitor.page.locator("#onnx-wait")).to_be_hidden()
    visitor.page.evaluate(DROP, ["bad.png", [1, 2, 3], "image/png"])
    assert visitor.problem("onnx") == "bad.png: not a picture that this browser reads"
    visitor.page.locator("#inputs select").first.select_option("ones")
    visitor.run_model()
    expect(visitor.page.locator("#onnx-problem")).to_be_hidden()


def test_a_search_with_files_of_one_s_own(visitor: Visitor, files: Path) -> None:
    """Without an encoder the tab says how to get one; a passage is nearest to itself."""
    visitor.page.click("#search-tab")
    assert "make web" in visitor.page.locator("#search-side").inner_text()
    visitor.give("search", files / "small.onnx")
    assert "Now its tokenizer.json" in visitor.page.locator("#search-side").inner_text()
    visitor.give("search", files / "tokenizer.json")
    text = "A first one, of 3.5 metres. The second 😀 sentence!\n\n- an item\n- another item"
    visitor.page.fill("#document", text)
    assert visitor.search("The second 😀 sentence!")[0] == "The second 😀 sentence!"
    assert visitor.page.locator("#passages").text_content() == text
    assert visitor.page.locator("#passages .passage").count() == 4
    nearest = visitor.page.locator("#passages .passage").nth(1)
    assert "--near" in (nearest.get_attribute("style") or "")
    visitor.page.locator("#hits button").nth(1).click()
    assert visitor.page.locator(".passage.shown").count() == 1
    visitor.page.click("#edit")
    assert visitor.page.input_value("#document") == text
    visitor.page.fill("#document", " \n")
    visitor.page.click("#search-run")
    assert visitor.problem("search") == "There is no text to search: paste one."


def test_reading_is_stopped(visitor: Visitor, files: Path) -> None:
    visitor.page.click("#search-tab")
    visitor.give("search", files / "small.onnx", files / "tokenizer.json")
    visitor.page.fill("#document", "".join(f"Sentence number {i} goes here. " for i in range(4000)))
    visitor.page.fill("#question", "one")
    visitor.page.click("#search-run")
    expect(visitor.page.locator("#search-wait-text")).to_contain_text(" of 4000", timeout=READY)
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.locator("#search-state")).to_have_text("Stopped.", timeout=READY)
    expect(visitor.page.locator("#search-run")).to_be_enabled()


def test_the_language_model_is_there_still(visitor: Visitor) -> None:
    visitor.page.click("#language-tab")
    visitor.write("One morning, Tom", 20)
    assert len(visitor.run()) > 20


@pytest.fixture(scope="module")
def searched(site: Site, repository: Path) -> Iterator[Server]:
    """A site with the trained encoder, as `make web` has it."""
    model = tool(repository, "make_encoder")
    encoder = {"model": model, "tokenizer": model.with_name(ENCODER[1])}
    with in_thread(Server(with_encoder(site, encoder))) as server:
        yield server


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [("search-desktop", 1280, 900, "light"), ("search-phone", 360, 780, "dark")],
)
def test_paraphrases_come_first(
    browser: Browser, searched: Server, repository: Path,
    name: str, width: int, height: int, scheme: str,
) -> None:  # fmt: skip
    """With MiniLM in int8, by an address of the tab; screenshots are kept to be looked at."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    user = Visitor(context, f"{searched.address}#search")
    expect(user.page.locator("#search-run")).to_be_enabled(timeout=READY)
    for question, passage in PARAPHRASES.items():
        assert user.search(question)[0].startswith(passage)
    assert float(user.get("question-time")) > 0
    assert float(user.get("passage-time")) > 0
    folder = repository / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    user.page.screenshot(path=folder / f"{name}.png", full_page=True)
    assert user.page.evaluate("document.documentElement.scrollWidth") <= width
    small = user.page.evaluate("""() => [...document.querySelectorAll("button, .button")]
      .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 44)
      .map((e) => e.id || e.textContent)""")
    assert small == []
    assert user.failures == []
    context.close()
