"""``halfbyte web``: serves or exports the page."""

from __future__ import annotations

import argparse
from pathlib import Path

from halfbyte.cli.common import add_debug
from halfbyte.cli.parser import Commands, Parser, whole


def add_web(commands: Commands[Parser]) -> None:
    """The command `web`."""
    parser = commands.add_parser(
        "web",
        help="serve the page that runs a model in the browser, or export it",
        description="Serve the page that runs halfbyte in a browser tab, on 127.0.0.1; or write it "
        "as static files for any host. The first use downloads Pyodide into a cache.",
        examples=[
            "halfbyte web model-int4.gguf --port 8000",
            "halfbyte web model-int4.gguf --allow-host demo.example.org",
            "halfbyte web model-int4.gguf --export site/",
            "halfbyte web --allow-host my-tunnel.example",
        ],
    )
    parser.add_argument(
        "model", nargs="?", type=Path, metavar="MODEL",
        help="the model that the page loads (default: the storyteller in int4)",
    )  # fmt: skip
    parser.add_argument("--port", type=whole, default=8000, metavar="N", help="0: any free port")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="also answer requests for this host name, such as that of a tunnel or a proxy; "
        "otherwise only 127.0.0.1 and localhost are answered; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write static files into a new folder instead"
    )
    add_debug(parser)
    parser.set_defaults(command=_web)


def _web(options: argparse.Namespace) -> int:
    from halfbyte.web.server import serve
    from halfbyte.web.site import make_site

    site = make_site(options.model)
    if options.export is None:
        serve(site, options.port, options.allow_host)
    else:
        site.export(options.export)
        print(f"{options.export}: {len(site.files)} files, {site.size / 1e6:.1f} MB")
    return 0
