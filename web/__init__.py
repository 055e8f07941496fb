"""halfbyte in the browser: the page, and what serves or exports it."""

from halfbyte.web.server import serve
from halfbyte.web.site import make_site

__all__ = ["make_site", "serve"]
