"""The report as one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benches.figures import Content, series_of
from benches.page.cases import all_cases, peers, side_by_side
from benches.page.curves import history, roofline, scaling

STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --soft: #5b6675; --line: #d9dee5; --back: #fff;
  --card: #f5f7f9; --c0: #1f6feb; --c1: #c2410c; --c2: #15803d; --c3: #7c3aed; --c4: #be185d;
  --c5: #0e7490; --c6: #a16207; --c7: #475569; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #333c48;
  --back: #12161c; --card: #1a2028; --c0: #6ea8fe; --c1: #fb923c; --c2: #4ade80; --c3: #b794f6;
  --c4: #f472b6; --c5: #22d3ee; --c6: #facc15; --c7: #94a3b8; } }
* { box-sizing: border-box; min-width: 0 } body { margin: 0 auto;
  max-width: 62rem; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
h1 { font-size: 1.7rem; margin: 0 } h2 { margin: 2.5rem 0 .3rem; font-size: 1.25rem }
h3 { margin: 1.2rem 0 .2rem; font-size: 1rem } p { margin: .3rem 0 .8rem; color: var(--soft) }
nav a { display: inline-block; margin-right: 1rem } a { color: var(--c0) }
figure { margin: .5rem 0 }
svg { width: 100%; height: auto; background: var(--card); border-radius: .5rem; }
svg text { fill: var(--soft); font-size: 12px } .grid line { stroke: var(--line) }
polyline { stroke-width: 2 } .legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0;
  margin: .4rem 0; list-style: none; font-size: .875rem } .legend i { display: inline-block;
  margin-right: .35rem } .dot { width: .7rem; height: .7rem; border-radius: 50%;
  background: currentColor } .dash { width: 1.2rem; border-top: 2px dashed; vertical-align: middle }
.bar { display: grid; grid-template-columns: 11rem 1fr 9rem; gap: .6rem; align-items: center;
  font-size: .875rem } .bar b { background: var(--card); height: .8rem; border-radius: .2rem }
.bar i { display: block; height: 100%; min-width: 2px; background: var(--c0); border-radius: .2rem }
.bar em { font-style: normal; color: var(--soft) }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .875rem; width: 100% }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap } th:first-child, td:first-child,
  .peers td:nth-child(2), .peers th:nth-child(2), .why { text-align: left }
.why { white-space: normal }
summary { cursor: pointer; padding: .4rem 0; font-weight: 600 } .mark { color: var(--c1) }
details p { margin: .8rem 0 .2rem; color: var(--ink) } .ahead { color: var(--c2) } code {
  font-size: .8em } details { border-top: 1px solid var(--line) }
@media (max-width: 40rem) { h1 { font-size: 1.4rem }
  .bar { grid-template-columns: 1fr 1fr; gap: .1rem .6rem; margin-bottom: .5rem }
  .bar b { grid-column: 1 / 3; grid-row: 2 }
  .bar em { text-align: right } svg text { font-size: 20px } }
"""


def page(latest: Content, earlier: Sequence[Content] = ()) -> str:
    """The whole file; `earlier` is of other sessions, the oldest first."""
    series = series_of(latest)
    measured = [one for one in series if one.seconds]
    sections = {
        "Peers": peers(series), "Roofline": roofline(measured), "Scaling": scaling(measured),
        "Side by side": side_by_side(series), "Over time": history([*earlier, latest]),
        "All cases": all_cases(series),
    }  # fmt: skip
    shown = {title: body for title, body in sections.items() if body}
    names = {title: title.lower().replace(" ", "-") for title in shown}
    links = "".join(f'<a href="#{names[title]}">{title}</a>' for title in shown)
    body = "".join(f'<h2 id="{names[t]}">{t}</h2>{text}' for t, text in shown.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>halfbyte: benchmarks</title><style>{STYLE}</style>"
        f"<h1>halfbyte: benchmarks</h1><p>{_conditions(latest)}</p><nav>{links}</nav>"
        f"<main>{body}</main></html>"
    )


def _conditions(content: Content) -> str:
    info = content["machine_info"]
    parts = [
        content["datetime"][:10], info["processor"], f"{info['cpu']['count']} cores",
        f"kernels {info['instruction_sets'][0]}", *content["versions"].values(),
    ]  # fmt: skip
    return f"{escape(', '.join(parts))}; <code>{escape(content['command'])}</code>"
