"""Check that all links of a built site lead to an existing page, file and anchor.

python tools/check_site.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect anchors and links from a tag."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken(site: Path) -> list[str]:
    """A line for each broken link; links to other hosts are not checked."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    lines = []
    for page in pages.values():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            if not target.is_file():
                lines.append(f"{page.path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                lines.append(f"{page.path.relative_to(site)}: {link}: no such anchor")
    return lines


def main() -> int:
    """Exit code 1 where a link is broken."""
    site = Path(sys.argv[1]).resolve()
    lines = broken(site)
    print("\n".join(lines) or f"links         whole: {len(list(site.rglob('*.html')))} pages")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
