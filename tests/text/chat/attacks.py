"""Templates that would crash a process or run for ever if something were not bounded.

As a program it tries them, without Python's own limit of recursion.
"""

from __future__ import annotations

import json
import sys
import time

from halfbyte.errors import HalfbyteError
from halfbyte.text.chat.template import ChatTemplate
from halfbyte.text.footprint import peak_bytes

NS = "{% set ns = namespace(x=[1]) %}"
LONG = "{% set a = [0] * 100000 + [1] %}{% set b = [0] * 100000 + [2] %}"


def often(body: str, times: int = 60_000) -> str:
    return "{% for i in range(" + str(times) + ") %}" + body + "{% endfor %}"


TUPLES = "{% set ns = namespace(x=()) %}" + often("{% set ns.x = (ns.x,) %}", 20_000)
LISTS = "{% set ns = namespace(x=[], y=[]) %}" + often(
    "{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}", 20_000
)

RENDERING = {
    "fine: select of select": NS + often("{% set ns.x = ns.x|select %}", 40_000) + "{{ ns.x|list }}",
    "fine: map of map": NS + often("{% set ns.x = ns.x|map('string') %}", 40_000) + "{{ ns.x|list }}",
    "fine: reverse of reverse": NS + often("{% set ns.x = ns.x|reverse %}", 40_000) + "{{ ns.x|list }}",
    "fine: iterators of lists of iterators": NS + often("{% set ns.x = [ns.x]|select %}", 40_000),
    "fine: macros that hold macros": NS + often("{% set p = ns.x %}{% macro m() %}{{ p }}{% endmacro %}{% set ns.x = m %}", 40_000),
    "fine: undefined of undefined": NS + often("{% set ns.x = {'a': ns.x}.b %}", 40_000),
    "fine: methods of methods": NS + often("{% set ns.x = {'a': ns.x}.get %}", 40_000),
    "fine: loops in lists": NS + often("{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}", 20_000),
    "views of views": NS + often("{% set ns.x = {'a': ns.x}.items() %}", 40_000) + "{{ ns.x }}",
    "loops over loops": NS + often("{% for y in ns.x %}{% set ns.x = loop %}{% break %}{% endfor %}"),
    "namespaces in namespaces": NS + often("{% set ns.x = namespace(a=ns.x) %}"),
    "in a list": LONG + "{{ a in [b] * 3000000 }}",
    "not in a list": LONG + "{{ a not in [b] * 300000 }}",
    "a test of in": LONG + "{{ a is in([b] * 300000) }}",
    "select by in": LONG + "{{ [a]|select('in', [b] * 300000)|list }}",
    "in among comparisons": "{{ 1 in [1] in [2] }}",
    "in a text": often("{{ ('a' * 1200 ~ 'b') in ('a' * 2400) }}"),
    "trim": "{{ ('b' * 4000000)|trim('c' * 4000000 ~ 'b') }}",
    "strip": "{{ ('b' * 4000000).strip('c' * 4000000 ~ 'b') }}",
    "rfind": "{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000) }}",
    "rsplit": "{{ ('a' * 4000000).rsplit('b' ~ 'a' * 2000000) }}",
    "partition": often("{% set y = ('a' * 2400).partition('a' * 1200 ~ 'b') %}"),
    "split": "{{ ('a ' * 9000000).split()|length }}",
    "a text as a list": "{{ ('ё' * 9000000)|list|length }}",
    "title": "{{ ('a ' * 4000000)|title }}",
    "number": "{{ ('9' * 4000000)|int(0, 16) }}",
    "sort": "{% set a = [[0] * 1000] * 1000 %}" + often("{% set b = a|sort %}"),
    "JSON, indented deep": "{% set ns = namespace(x=range(90000)|list) %}" + often("{% set ns.x = [ns.x] %}", 90) + "{{ ns.x|tojson(indent=16) }}",
    "a date": "{{ strftime_now('%c' * 1000000) }}",
    "tuple as a key": TUPLES + "{{ {ns.x: 1} }}",
    "tuple as a subscript": TUPLES + "{{ {'a': 1}[ns.x] }}",
    "tuple in a dict": TUPLES + "{{ ns.x in {'a': 1} }}",
    "tuple to unique": TUPLES + "{{ [ns.x]|unique|list }}",
    "tuple to get": TUPLES + "{{ {'a': 1}.get(ns.x) }}",
    "keys that meet": "{{ {(1, 2): 3} }}",
    "keys of pairs": "{{ dict([((1, 2), 3)]) }}",
    "unique tuples": "{{ [(1, 2)]|unique|list }}",
    "lists compared": LISTS + "{{ ns.x == ns.y }}",
    "lists sorted": LISTS + "{{ [ns.x, ns.y]|sort }}",
    "lists printed": LISTS + "{{ ns.x }}",
    "lists as JSON": LISTS + "{{ ns.x|tojson }}",
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns ~ 'a' }}",
    "a tower of namespaces": NS + often("{% set ns.x = namespace(a=ns.x, b=ns.x) %}", 60) + "{{ ns.x }}",
    "a tower of views": NS + often("{% set ns.x = {'a': ns.x, 'b': ns.x}.values() %}", 60) + "{{ ns.x }}",
    "keys minus a list": "{{ {'a': 1}.keys() - [1] * 1000000 }}",
    "a long body": often("{%if a%}{%endif%}" * 4000),
    "a long body of a macro": "{% macro m() %}" + "{%if a%}{%endif%}" * 4000 + "{% endmacro %}" + often("{{ m() }}"),
    "a long body of a call": "{% macro m() %}{{ caller() }}{% endmacro %}" + often("{% call m() %}" + "{%set a=1%}" * 4000 + "{% endcall %}"),
    "a long condition": "{% for i in range(90000) if " + "i + " * 90 + "i < 0 %}{% endfor %}" + often("{% for i in range(90000) if i < 0 %}{% endfor %}"),
    "a macro in itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a macro through a namespace": NS + "{% macro m() %}{{ ns.x() }}{% endmacro %}{% set ns.x = m %}{{ m() }}",
    "callers": "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro %}{{ r() }}",
    "a block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "filters of filters": NS + often("{% set ns.x = [ns.x] %}", 90) + "{{ ns.x|map('map'" + ", 'map'" * 80 + ")|list }}",
    "recursive loops": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
}  # fmt: skip

N = 60_000


def filled(part: str, n: int = N) -> str:
    return part * (n // len(part))


def around(first: str, last: str, n: int = N // 2) -> str:
    return first * (n // len(first)) + last * (n // len(first))


COMPILING = {
    "brackets": "{{" + around("(", ")") + "}}",
    "lists": "{{" + around("[", "]") + "}}",
    "subscripts": "{{ a" + around("[a", "]") + "}}",
    "calls": "{{ " + around("a(", ")") + "}}",
    "calls of calls": "{{ a" + filled("()") + "}}",
    "not": "{{ " + filled("not ") + "a }}",
    "minus": "{{ " + filled("- ") + "a }}",
    "dots": "{{ a" + filled(".b") + " }}",
    "filters": "{{ a" + filled("|e") + " }}",
    "conditions": "{{ " + filled("a if b else ") + "c }}",
    "and": "{{ a" + filled(" and b") + " }}",
    "plus": "{{ 1" + filled("+1") + " }}",
    "tilde": "{{ 1" + filled("~1") + " }}",
    "comparisons": "{{ 1" + filled("<1") + " }}",
    "power": "{{ 1" + filled("**1") + " }}",
    "items": "{{ [" + filled("1,") + "] }}",
    "if": around("{%if a%}", "{%endif%}"),
    "elif": "{%if a%}" + filled("{%elif a%}", 95_000) + "{%endif%}",
    "for": around("{%for a in b%}", "{%endfor%}"),
    "for, which Python bounds": around("{%for a in b%}", "{%endfor%}", 420),
    "with": around("{%with a=1%}", "{%endwith%}"),
    "filter": around("{%filter e%}", "{%endfilter%}"),
    "macro": around("{%macro a()%}", "{%endmacro%}"),
    "call": around("{%call a()%}", "{%endcall%}"),
    "generation": around("{%generation%}", "{%endgeneration%}"),
    "set": around("{%set a%}", "{%endset%}"),
    "outputs": filled("{{a}}", 200_000),
    "digits": "{{ " + "9" * N + " }}",
    "braces": filled("{") + "{%",
    "comments": filled("{#"),
    "quotes": "{{" + filled("'"),
    "fine: outputs": "{{a}}" * 4000,
    "fine: names": "".join(f"{{% set v{i} = v{i + 1} %}}" for i in range(3000)),
    "fine: names in branches": "{% if a %}" * 60 + "".join(f"{{% set v{i} = v{i + 1} %}}" for i in range(3000)) + "{% endif %}" * 60,
    "fine: raw": filled("{%raw%}{%endraw%}"),
}  # fmt: skip


def attack(name: str, source: str) -> dict[str, object]:
    """The outcome of rendering a template."""
    start, message = time.process_time(), ""
    try:
        ChatTemplate(source, "t").render([])
    except HalfbyteError as error:
        message = str(error)
    return {
        "name": name, "refused": message != "", "message": message,
        "seconds": time.process_time() - start,
        "megabytes": peak_bytes() / 1e6,
    }  # fmt: skip


if __name__ == "__main__":
    sys.setrecursionlimit(1_000_000)
    group, step = {"RENDERING": RENDERING, "COMPILING": COMPILING}[sys.argv[1]], int(sys.argv[2])
    for name, source in list(group.items())[::step]:
        print(json.dumps(attack(name, source)), flush=True)
