"""The page's tabs for ONNX models: pictures and numbers through any model, search by meaning."""

from __future__ import annotations

import io
import json
import re
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import tool
from tests.browser.graph_files import COLOURS, SIDE, classifier, listener, with_encoder
from tests.browser.visitor import MACHINE, READY, Visitor, pictures
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import in_thread, status, whole
from tests.support.pdf_files import written

from halfbyte import load_encoder
from halfbyte.web.server import Server
from halfbyte.web.site import ENCODER, SENSES, Site
from halfbyte.web.wheel import file_name

PARAPHRASES = {
    "What can we do with the kids on a rainy day?": "In bad weather families like the covered",
    "Was the town ever destroyed?": "In the flood of 1784 the lower town stood under water",
}

SIGN = [
    "Golden Heron Inn",
    "Breakfast from 6 to 10",
    "Rooms: 90 coins a night",
    "Please ring twice!",
]

WORDS = ["w1 w2 w3 w4 w5.", "w7 w8 w9 w10 w11.", "w7 w8 w21 w22.", "w31 w32 w33 w34."]
WORD = {"name": "a.wav", "mimeType": "audio/wav"}
PAGES = ["The bakery opens at five.", "The dentist works until noon."]

DROP = """
([name, bytes, type]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, { type }));
  const options = { dataTransfer: data, bubbles: true, cancelable: true };
  document.body.dispatchEvent(new DragEvent("drop", options));
}
"""


@pytest.fixture(scope="module")
def bare(site: Site) -> Site:
    """A site without an encoder, also if the cache has one."""
    return with_encoder(site, {})


@pytest.fixture(scope="module")
def visitor(browser: Browser, bare: Site) -> Iterator[Visitor]:
    with in_thread(Server(bare)) as server:
        context = browser.new_context()
        output = Visitor(context, server.address)
        output.ready()
        yield output
        assert output.failures == []
        context.close()


def test_graph_files_are_fetched_at_the_first_use(visitor: Visitor) -> None:
    names = [url.rsplit("/", 1)[-1] for url in visitor.requests]
    assert not {"graphs.mjs", "search.mjs", "onnx.mjs"} & set(names)
    wheels = [url for url in visitor.requests if url.endswith(".whl") and "halfbyte" in url]
    expected = [f"text/{file_name(name)}" for name in ("halfbyte", "halfbyte_relaxed")]
    assert sorted(url.partition("/pyodide/")[2] for url in wheels) == expected


def test_the_tabs_by_keyboard(visitor: Visitor) -> None:
    """Arrow keys change the tab; there is one tab stop; the address has the tab's name."""
    page = visitor.page
    page.focus("#language-tab")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Home", "End"):
        page.keyboard.press(key)
        seen.append(page.evaluate("document.activeElement.id"))
        shown = page.locator("[role=tabpanel].panel:visible").get_attribute("id")
        assert seen[-1].removesuffix("-tab") == (shown or "").removesuffix("-panel")
        assert page.locator(f"#{seen[-1]}").get_attribute("aria-selected") == "true"
        assert page.locator("header [tabindex='0']").count() == 1
    names = ["search", "onnx", "language", "onnx", "language", "onnx"]
    assert seen == [f"{name}-tab" for name in names]
    assert page.evaluate("location.hash") == "#onnx"


def test_a_picture_is_classified(visitor: Visitor, files: Path) -> None:
    """With both orders of channels and labels; the picture is cropped around its centre."""
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
    assert MACHINE in side
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


@pytest.mark.browser
def test_hostile_files(visitor: Visitor, files: Path) -> None:
    """Each is refused with a message, and the model in use continues."""
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
        assert "Unexpected error" not in visitor.problem("onnx")
        expect(visitor.page.locator("#onnx-wait")).to_be_hidden()
    visitor.page.evaluate(DROP, ["bad.png", [1, 2, 3], "image/png"])
    assert visitor.problem("onnx") == "bad.png: not a picture that this browser can read"
    visitor.page.locator("#inputs select").first.select_option("ones")
    visitor.run_model()
    expect(visitor.page.locator("#onnx-problem")).to_be_hidden()


def test_a_search_with_own_files(visitor: Visitor, files: Path) -> None:
    """Without an encoder the tab explains how to get one; a passage is nearest to itself."""
    visitor.page.click("#search-tab")
    expect(visitor.page.locator("#search-side")).to_contain_text("make web", timeout=READY)
    visitor.give("search", files / "small.onnx")
    assert "Now drop its tokenizer.json" in visitor.page.locator("#search-side").inner_text()
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


@pytest.mark.browser
def test_an_encoder_in_gguf(
    visitor: Visitor, files: Path, models: Path, elsewhere: ModelServer, repository: Path
) -> None:
    """Dropped on the first tab, which a language model for the search goes to; by address."""
    page, path, name = visitor.page, files / "small.gguf", "#search-side .model-name"
    page.click("#language-tab")
    page.evaluate(DROP, [path.name, list(path.read_bytes()), ""])
    expect(page.locator(name)).to_have_text("small.gguf", timeout=READY)
    assert page.evaluate("location.hash") == "#search"
    prompts = [page.input_value(f"#{kind}-prompt") for kind in ("question", "passage")]
    assert prompts == ["search_query: ", "search_document: "]
    page.fill("#document", "\n\n".join(WORDS))
    with load_encoder(path) as model:
        vectors = model.embed([prompts[1] + text for text in WORDS], prompt="", normalize=True)
        scores = vectors @ model.embed(["w7 w8 w9"], prompt=prompts[0], normalize=True)[0]
    order = np.argsort(-scores)
    assert visitor.search("w7 w8 w9") == [WORDS[i] for i in order]
    shown = [float(text) for text in page.locator("#hits .score").all_inner_texts()]
    np.testing.assert_allclose(shown, scores[order], atol=2e-3)
    pictures(visitor, repository, "search-gguf-")

    page.set_input_files("#search-file", models / "Q8_0.gguf")
    expect(page.locator("#model-name")).to_have_text("Q8_0.gguf", timeout=READY)
    expect(page.locator("#language-panel")).to_be_visible()

    page.click("#search-tab")
    elsewhere.body = path.read_bytes()
    address = elsewhere.url.replace("model.gguf", "other.gguf")
    page.fill("#encoder-url", address)
    page.click("#encoder-load")
    expect(page.locator(name)).to_have_text("other.gguf", timeout=READY)
    expect(page.locator("#search-shelf .tool").first).to_contain_text("other.gguf", timeout=READY)
    assert page.evaluate("new URLSearchParams(location.search).get('model')") == address
    page.evaluate("localStorage.clear()")  # as somebody who follows the link
    page.reload()
    expect(page.locator(name)).to_have_text("other.gguf", timeout=READY)
    assert elsewhere.starts == [0]


@pytest.mark.browser
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


def test_the_language_model_is_still_loaded(visitor: Visitor) -> None:
    visitor.page.click("#language-tab")
    visitor.write("One morning, Tom", 20)
    assert len(visitor.run()) > 20


@pytest.fixture(scope="module")
def searched(site: Site, repository: Path) -> Iterator[Server]:
    """A site with the trained encoder, as `make web` has it."""
    model = tool(repository, "make_encoder")
    encoder = {"model": model, "tokenizer": model.with_name(ENCODER[1])}
    whole = with_encoder(site, encoder)
    folder = tool(repository, "get_senses")
    senses = {f"models/{name}": folder / name for name in SENSES.values()}
    told = json.loads(bytes(whole.files["site.json"]))  # type: ignore[arg-type]
    told["senses"] = dict(zip(SENSES, senses, strict=True))
    whole.files.update(senses | {"site.json": json.dumps(told).encode()})
    with in_thread(Server(whole)) as server:
        yield server


@pytest.fixture(scope="module")
def finder(browser: Browser, searched: Server) -> Iterator[Visitor]:
    """Somebody who opened the tab for search by its address."""
    context = browser.new_context()
    user = Visitor(context, f"{searched.address}#search")
    expect(user.page.locator("#search-run")).to_be_enabled(timeout=READY)
    yield user
    assert user.failures == []
    context.close()


def test_paraphrases_come_first(finder: Visitor, repository: Path) -> None:
    """With MiniLM in int8."""
    for question, passage in PARAPHRASES.items():
        assert finder.search(question)[0].startswith(passage)
    assert float(finder.get("question-time")) > 0
    assert float(finder.get("passage-time")) > 0
    finder.page.locator("#hits button").last.click()
    expect(finder.page.locator(".passage.shown")).to_be_in_viewport()
    pictures(finder, repository, "search-")
    pdf = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": written(*PAGES)}
    finder.page.set_input_files("#search-file", pdf)  # type: ignore[arg-type]
    expect(finder.page.locator("#document")).to_have_value("\n\n".join(PAGES), timeout=READY)
    assert finder.search("Who can repair my tooth?") == [PAGES[1], PAGES[0]]


FRAMED = """() => {
  const canvas = document.getElementById("seen");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Uint32Array(data.buffer);
  return colours.filter((colour) => colour === 0xff536a0c).length;  // the frames', as ABGR
}"""


# How many samples a model is given of a file's sound, and what the page says of that
SAMPLES = """async (bytes) => {
  const { samplesOf, spanOf } = await import("./sound.mjs");
  const sound = await samplesOf(new File([new Uint8Array(bytes)], "a.wav"));
  return [sound.samples.length, spanOf(sound)];
}"""


# Counts the decoded pictures that the page still holds
HELD = """() => {
  const [decode, { close }] = [self.createImageBitmap, ImageBitmap.prototype];
  self.held = 0;
  self.createImageBitmap = (...given) => {
    held += 1;
    return decode(...given);
  };
  ImageBitmap.prototype.close = function () {
    held -= 1;
    close.call(this);
  };
}"""


def silence(seconds: int) -> bytes:
    """A sound file in which nothing is heard."""
    target = io.BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8000 * seconds)
    return target.getvalue()


@pytest.mark.browser
def test_see_and_hear(finder: Visitor, repository: Path) -> None:
    """A photo, a sign and a word, each with one click; and what the microphone hears."""
    finder.page.set_viewport_size({"width": 360, "height": 780})
    finder.page.evaluate(HELD)
    finder.page.click("#onnx-tab")
    finder.page.click("#name-sample", timeout=READY)
    expect(finder.page.locator("#names th").first).to_have_text("espresso", timeout=READY)
    assert float(finder.page.locator("#names td").first.inner_text().removesuffix(" %")) > 50
    finder.page.click("#see-sample")
    expect(finder.page.locator("#lines li")).to_have_text(SIGN, timeout=READY)
    expect(finder.page.locator("#sense-state")).to_contain_text("4 lines of text in ")
    assert finder.page.evaluate(FRAMED) > 1000
    assert finder.page.evaluate("held") == 0
    finder.page.click("#hear-sample")
    expect(finder.page.locator("#parts li")).to_have_text(["0.3 – 0.8 s"], timeout=READY)
    finder.page.click("#record")
    expect(finder.page.locator("#sense-wait-text")).to_have_text("Recording for 4 seconds")
    heard = re.compile("^[345] parts with speech")  # one each second, wherever it begins
    expect(finder.page.locator("#sense-state")).to_have_text(heard, timeout=READY)
    broken = {"name": "no.wav", "mimeType": "audio/wav", "buffer": b"RIFF"}
    finder.page.set_input_files("#hear-file", broken)  # type: ignore[arg-type]
    expect(finder.page.locator("#sense-problem")).to_have_text(
        "no.wav: not a sound that this browser can read"
    )
    heard_of = finder.page.evaluate(SAMPLES, list(silence(130)))
    assert heard_of == [120 * 16_000, "the first 120 of 130.0 s"]
    finder.page.evaluate("""() => {
      self.usual = self.fetch;
      self.fetch = () => Promise.reject(new TypeError("offline"));
    }""")
    finder.page.click("#name-sample")
    expect(finder.page.locator("#sense-problem")).to_have_text(
        "coffee.jpg: its server does not answer, or this device is offline"
    )
    expect(finder.page.locator("#name-sample")).to_be_enabled()
    finder.page.evaluate("self.fetch = self.usual")
    finder.page.screenshot(path=repository / "build/screenshots/senses.png", full_page=True)
    assert finder.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.browser
def test_models_by_address(finder: Visitor, elsewhere: ModelServer, files: Path) -> None:
    """Opened, kept, in the page's address; a photo, and a sound; cancelled, missing, and wrong."""
    page, problem = finder.page, finder.page.locator("#onnx-problem")

    def load(address: str) -> None:
        page.fill("#onnx-url", address)
        page.click("#onnx-load")

    def opened(name: str, content: bytes) -> None:
        elsewhere.body = content
        load(elsewhere.url.replace("model.gguf", f"blob/{name}"))
        expect(page.locator("#onnx-side .model-name")).to_have_text(name, timeout=READY)
        expect(page.locator("#onnx-wait")).to_be_hidden(timeout=READY)

    page.click("#onnx-tab")
    opened("a thousand.onnx", classifier(classes=1000))
    assert page.evaluate("location.hash") == "#onnx"
    address = elsewhere.url.replace("model.gguf", "resolve/a thousand.onnx")
    assert page.evaluate("new URLSearchParams(location.search).get('model')") == address
    page.get_by_role("button", name="Look at the photo").click()
    expect(page.locator("#inputs canvas")).to_be_visible()
    assert page.locator("#inputs .picture select").first.input_value() == "imagenet"
    assert finder.run_model()[0] == "tench"  # the first class, and the photo's middle is reddest
    page.set_input_files("#onnx-file", {**WORD, "buffer": b"RIFF"})  # type: ignore[arg-type]
    expect(problem).to_have_text("a.wav: no input of this model takes a sound")
    page.reload()  # the address opens it again, from the shelf
    expect(page.locator("#onnx-side .model-name")).to_have_text("a thousand.onnx", timeout=READY)
    assert elsewhere.starts == [0]
    page.click("#language-tab")
    finder.unfold()
    expect(page.locator("#shelf .tool").first).to_contain_text("a thousand.onnx")
    page.click("#onnx-tab")

    opened("loud.onnx", listener())
    finder.give("onnx", files / "labels.txt")
    page.get_by_role("button", name="Hear the word").click()
    expect(page.locator("#inputs")).to_contain_text("speech.wav: 1.0 s, 16,")
    assert finder.run_model() == ["loud", "soft"]
    page.get_by_label("Samples per second").fill("8000")
    page.get_by_label("Samples per second").blur()
    expect(page.locator("#inputs")).to_contain_text("speech.wav: 1.0 s, 8,")
    finder.run_model()
    expect(page.locator("#onnx-state")).to_contain_text("waveform [1, 8")

    over = threading.Event()
    elsewhere.answer = lambda handler, start: over.wait(60)
    load(elsewhere.url.replace("model.gguf", "slow.onnx"))
    page.click("#onnx-cancel")
    expect(page.locator("#onnx-wait")).to_be_hidden(timeout=READY)
    over.set()
    expect(problem).to_be_hidden()
    elsewhere.answer = status(404)
    load(elsewhere.url)
    expect(problem).to_contain_text("model.gguf: the server answered 404", timeout=READY)
    elsewhere.answer, elsewhere.body = whole, b"<html>"
    load(elsewhere.url)
    expect(problem).to_contain_text("model.gguf: not an ONNX model", timeout=READY)
    assert finder.run_model() == ["loud", "soft"]  # the model in use continues
    opened("text.onnx", (files / "small.onnx").read_bytes())
    page.set_input_files("#onnx-file", files / "red.png")
    expect(problem).to_have_text("red.png: no input of this model takes a picture")
    listed = {"siblings": [{"rfilename": f"onnx/{n}.onnx"} for n in ("a", "model_quantized", "b")]}
    page.route("https://*/api/models/o/n", lambda route: route.fulfill(body=json.dumps(listed)))
    load("o/n")
    expect(problem).to_contain_text("o/n/resolve/main/onnx/model_quantized.onnx: ", timeout=READY)
