"""The page as an app: it starts without its server, and follows a new version."""

from __future__ import annotations

from dataclasses import replace

from playwright.sync_api import Browser, expect
from tests.browser.visitor import PROMPT, READY, visit
from tests.support.http_server import in_thread
from tests.support.sites import changed, content

from halfbyte.web.server import Handler, Server
from halfbyte.web.site import STORYTELLER, Site

WATCH = """
globalThis.said = [];
new MutationObserver(() => said.push(document.getElementById("wait-text")?.textContent))
  .observe(document, { subtree: true, childList: true, characterData: true });
"""


KEPT = """
async () => (await (await caches.open("halfbyte-site")).keys()).map(
  ({ url }) => url.replace(location.href, "").replace(/[?].*/, ""))
"""
# Two exports may have one origin, and then they share what is kept.
OTHERS = """
async () => await (await caches.open("halfbyte-site")).put(
  "https://other.example/another.js?1", new Response(""))
"""


class Once(Handler):
    """Closes each connection, so that nothing of a server remains after its end."""

    protocol_version = "HTTP/1.0"


class Gateway(Once):
    """What stands before a server that has ended."""

    def do_GET(self) -> None:
        self.send_error(502)


def server_of(site: Site, port: int = 0) -> Server:
    server = Server(site, port)
    server.RequestHandlerClass = Once
    return server


def newer(site: Site) -> Site:
    """Another version of the site: of one file."""
    page = content(site, "index.html").replace(b"<title>", b"<title>newer ")
    return changed(site, {"index.html": page})


def test_without_its_server(browser: Browser, site: Site, golden: str) -> None:
    files = {**site.files, "coffee.jpg": b"another picture"}
    with in_thread(server_of(replace(site, files=files))) as server:
        port = server.server_address[1]
        with visit(browser, "about:blank", keeps=True) as user:
            user.page.add_init_script(WATCH)
            user.page.goto(server.address)
            expect(user.page.locator("html")).to_have_attribute("data-kept", "yes", timeout=READY)
            kept = user.page.evaluate(KEPT)
            assert "worker.mjs" in kept
            assert "coffee.jpg" not in kept  # whose bytes are not those that site.json lists
            assert {name for name in kept if "models/" in name} == {f"models/{STORYTELLER}"}
            said = user.page.evaluate(
                "said.filter((text) => /^Loading Python: .*\\s%$/.test(text))"
            )
            assert len(said) > 3
            server.shutdown()
            server.server_close()
            requests = len(user.requests)
            user.page.reload()
            user.ready()
            user.write(PROMPT)
            assert user.run() == golden
            assert user.page.title().startswith("halfbyte")
            assert len(user.requests) > requests
            gateway = server_of(site, port)
            gateway.RequestHandlerClass = Gateway
            with in_thread(gateway):
                user.page.reload()
                user.ready()
            user.page.evaluate(OTHERS)
            with in_thread(server_of(newer(site), port)):
                user.page.reload()
                assert user.page.title().startswith("newer ")
                user.ready()
                kept = user.page.evaluate(KEPT)
                assert kept.count("index.html") == 1
                assert any(name.endswith("/another.js") for name in kept)
            another = Site({"index.html": b"<title>Another site"})
            with in_thread(server_of(another, port)):
                user.page.reload()
                expect(user.page).to_have_title("Another site")
            assert user.failures == []
