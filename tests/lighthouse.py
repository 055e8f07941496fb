"""Lighthouse's marks for an exported site, as `halfbyte web` serves it on 127.0.0.1.

    python -m tests.lighthouse              the page and the race, as on a phone and on a desktop
    python -m tests.lighthouse --table      also writes the table in docs/browser.md

Lighthouse comes from npm into a cache, and runs the Chromium of the tests. It watches until the
page's first story has been told. The exit code is 1 where a mark is below 95 of 100.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.http_server import in_thread
from tests.support.tables import REPOSITORY, dated, write_table
from tests.support.tools import load_tool

from halfbyte.web.server import Server, compress
from halfbyte.web.site import Site, make_site

PACKAGE = "lighthouse@12.8.2"
LEAST = 95
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
TIMES = {
    "first paint": ("observedFirstPaint", "ms"),
    "largest paint": ("largestContentfulPaint", "ms"),
    "blocked": ("totalBlockingTime", "ms"),
    "shift": ("cumulativeLayoutShift", ""),
}
FORMS = {"phone": "default-config", "desktop": "desktop-config"}
STORY_MS = 15_000  # after the page's load, in which Python starts and the first story is told
FLAGS = "--headless --no-sandbox --disable-quic --disable-background-networking"
CONFIG = """import base from {base};
export default {{ ...base, settings: {{ ...base.settings, pauseAfterLoadMs: {pause} }} }};
"""


def get_lighthouse() -> Path:
    """The folder of the package, which npm installs once."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "halfbyte" / PACKAGE.replace("@", "-")
    package = folder / "node_modules" / "lighthouse"
    if not package.exists():
        command = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", folder, PACKAGE]
        subprocess.run(command, check=True)
    return package


def audit(url: str, form: str, chromium: str, work: Path) -> dict[str, Any]:
    """Lighthouse's report of a page."""
    package = get_lighthouse()
    base = (package / "core" / "config" / f"{FORMS[form]}.js").as_uri()
    config, report = work / f"{form}.mjs", work / "report.json"
    config.write_text(CONFIG.format(base=json.dumps(base), pause=STORY_MS))
    command = [
        "node", package / "cli" / "index.js", url, "--quiet", f"--config-path={config}",
        f"--chrome-flags={FLAGS}", "--output=json", f"--output-path={report}",
    ]  # fmt: skip
    subprocess.run(command, check=True, env=os.environ | {"CHROME_PATH": chromium})
    result: dict[str, Any] = json.loads(report.read_bytes())
    if error := result.get("runtimeError"):
        raise SystemExit(f"{url}: {error['message']}")
    return result


def exported(folder: Path) -> Site:
    """A site that was exported to this folder, to be served like the one it was made from."""
    site = make_site()
    site.export(folder)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return replace(site, files={path.relative_to(folder).as_posix(): path for path in paths})


def row_of(form: str, page: str, report: dict[str, Any]) -> dict[str, str]:
    """Marks and times of a report."""
    marks = {name: f"{100 * report['categories'][name]['score']:.0f}" for name in CATEGORIES}
    measured = report["audits"]["metrics"]["details"]["items"][0]
    times = {
        title: f"{measured[key]:.0f} {unit}" if unit else f"{measured[key]:.3f}"
        for title, (key, unit) in TIMES.items()
    }
    return {"page": f"{page}, {form}", **marks, **times}


def complaints(report: dict[str, Any]) -> list[str]:
    """What cost marks."""
    return [
        f"{category['id']}: {audit['title']} {audit.get('displayValue', '')}"
        for category in report["categories"].values()
        for audit in (report["audits"][ref["id"]] for ref in category["auditRefs"] if ref["weight"])
        if audit["score"] is not None and audit["score"] < 1
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="write the table in docs/browser.md")
    options = parser.parse_args()
    chromium = str(load_tool(REPOSITORY, "get_chromium").get_chromium())
    rows = []
    with tempfile.TemporaryDirectory() as work:
        site = exported(Path(work) / "site")
        compress(site)
        with in_thread(Server(site)) as server:
            for page, path in (("the page", ""), ("the race", "race/")):
                for form in FORMS:
                    report = audit(server.address + path, form, chromium, Path(work))
                    rows.append(row_of(form, page, report))
                    print(", ".join(f"{k} {v}".strip() for k, v in rows[-1].items()), flush=True)
                    for line in complaints(report):
                        print(f"    {line}", flush=True)
    low = [row["page"] for row in rows if any(int(row[name]) < LEAST for name in CATEGORIES)]
    if low:
        raise SystemExit(f"below {LEAST}: {'; '.join(low)}")
    if options.table:
        note = f"{PACKAGE}; largest paint and blocked time are those of a throttled device."
        note += f"\n\n{dated('python -m tests.lighthouse --table')}"
        write_table("docs/browser.md", "lighthouse", rows, note)


if __name__ == "__main__":
    main()
