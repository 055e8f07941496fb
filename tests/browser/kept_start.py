"""What the page keeps of its first start, given to later users, whose start takes half the time.

It is in the browser's cache (start.mjs), which each user of the tests has empty: `first_start`
takes it from a first one, `with_kept_start` adds it to a site, and `keep_start` puts it back.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Browser, BrowserContext

from halfbyte.web.site import Site

SECONDS = 120
PAGE, FOLDER = "kept-start.html", "kept-start/"
# Resolves with the names in the cache when there are all
NAMES = """
async (seconds) => {
  for (const end = Date.now() + 1000 * seconds; Date.now() < end;) {
    const cache = await caches.open("halfbyte-start");
    const names = (await cache.keys()).map(({ url }) => url.split("/").pop());
    if (names.length === 2) return names;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error("nothing was kept");
}
"""
SAVE = """
async (name) => {
  const kept = await (await caches.open("halfbyte-start")).match(name);
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(await kept.blob()), download: name });
  link.click();
}
"""
KEEP = """
async (names) => {
  const cache = await self.caches?.open("halfbyte-start").catch(() => undefined);
  if (!cache) return false;
  await Promise.all(names.map(async (name) => cache.put(name, await fetch(`kept-start/${name}`))));
  return true;
}
"""


def first_start(browser: Browser, address: str, folder: Path) -> list[Path]:
    """The files that a first start keeps."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    paths = [folder / name for name in page.evaluate(NAMES, SECONDS)]
    for path in paths:
        with page.expect_download() as download:
            page.evaluate(SAVE, path.name)
        download.value.save_as(path)
    context.close()
    return paths


def with_kept_start(site: Site, paths: list[Path]) -> Site:
    """A site with these files, and an empty page that may use the same cache as the site's."""
    kept = {FOLDER + path.name: path for path in paths}
    return replace(site, files={**site.files, **kept, PAGE: "\n".join(kept).encode()})


def keep_start(context: BrowserContext, address: str) -> bool:
    """Put the files into a user's cache, if the site has them and the user has a cache."""
    page = context.new_page()
    answer = page.goto(urljoin(address, f"/{PAGE}"))
    kept = False
    if answer and answer.ok:
        names = [line.removeprefix(FOLDER) for line in answer.text().splitlines()]
        kept = page.evaluate(KEEP, names)
    page.close()
    return kept
