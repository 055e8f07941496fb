"""Answers as HTML: what Markdown means, and nothing that runs or loads."""

from __future__ import annotations

import pytest

from halfbyte.web.engine import markdown_renderer

CASES = {
    "**bold** and `code`": "<p><strong>bold</strong> and <code>code</code></p>",
    "one\ntwo": "<p>one<br />\ntwo</p>",
    "<script>alert(1)</script>": "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "[a](javascript:alert(1))": "<p>[a](javascript:alert(1))</p>",
    "![a](https://stranger.invalid/pixel.png)": (
        '<p>!<a href="https://stranger.invalid/pixel.png" target="_blank" '
        'rel="noopener noreferrer">a</a></p>'
    ),
    "<img src=x onerror=alert(1)>": "<p>&lt;img src=x onerror=alert(1)&gt;</p>",
    "| a |\n|--:|\n| 1 |": (  # without a style, which the page's policy forbids
        '<table>\n<thead>\n<tr>\n<th class="to-right">a</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n'
        '<td class="to-right">1</td>\n</tr>\n</tbody>\n</table>'
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_markdown(text: str) -> None:
    render = markdown_renderer()
    assert render is not None
    assert render(text).strip() == CASES[text]
