"""Chat templates: their texts, and their limits."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any

import jinja2.sandbox
import pytest
from tests.text.chat.templates import HOSTILE, LONG, SHORT, TEMPLATES, TOOLS

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.text.chat.sandbox import Generation
from halfbyte.text.chat.template import ChatTemplate

VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}


def plainly(source: str, **variables: Any) -> str:
    """Render with Jinja itself, set up as in Hugging Face's transformers."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(
        x, ensure_ascii=False, indent=indent
    )
    return environment.from_string(source).render(**variables)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("more", [{}, {"tools": TOOLS, "enable_thinking": False}])
def test_the_meter_changes_nothing(
    name: str, messages: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    variables = VARIABLES | more
    expected = plainly(TEMPLATES[name], messages=messages, **variables)
    assert ChatTemplate(TEMPLATES[name], "t").render(messages, **variables) == expected
    assert len(expected) > 30


SNIPPETS = [
    "{% for x in [3, 1, 2]|sort %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
    "{% for x in [] %}{% else %}none{% endfor %}{% for x in nothing %}{% endfor %}",
    "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k ~ v }}{% endfor %}",
    "{% for x in range(9) if x is odd %}{{ x }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{{ 1 < 2 < 3 }} {{ 2 in [1, 2] }} {{ 'b' not in 'abc' }} {{ {'a': 1} == {'a': 1} }}",
    "{{ 'a,b'.split(',')[-1:] }} {{ 'abc'[::-1] }} {{ ' x '|trim ~ none ~ 1.5 ~ [1, 'a'] }}",
    "{% set x %}a{% for i in range(3) %}{{ i }}{% endfor %}{% endset %}{{ x|upper|replace('A', 'bb') }}",
    "{% macro m(a, b=2) %}{{ a + b }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(1, b=5) %}!{% endcall %}",
    "{{ [1, 2, 3]|join('-') }} {{ [{'n': 1}, {'n': 2}]|join(',', attribute='n') }} {{ 'abc'|join('.') }}",
    "{{ ['a', 'b']|map('upper')|list }} {{ [1, 2, 3]|select('greaterthan', 1)|list }} {{ [0, 1]|reject|list }}",
    "{{ [{'r': 'u'}, {'r': 's'}]|selectattr('r', 'equalto', 'u')|list|length }} {{ [1, 2]|first }} {{ [1, 2]|last }}",
    "{% filter upper %}abc{{ 1 }}{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}{{ x|default('d') }}",
    "{{ 'a\nb'|indent(2, true) }} {{ 7 // 2 }} {{ 7 % 4 }} {{ -3 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ (1, 2) }}",
    "{{ '<' | e }} {{ '<'|e + '>' }} {{ ('<'|safe) ~ '>' }} {{ 'x' if false }} {{ x is defined }} {{ none is none }}",
    "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }} {{ dict(a=1).items()|list }} {{ 'a'.join(['b', 'c']) }}",
]  # fmt: skip


@pytest.mark.parametrize("source", SNIPPETS)
def test_all_of_the_language(source: str) -> None:
    assert ChatTemplate(source, "t").render([]) == plainly(source, messages=[])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_soon(name: str) -> None:
    source, expected = HOSTILE[name]
    start = time.perf_counter()
    with pytest.raises(FormatError) as raised:
        ChatTemplate(source, "m.gguf: metadata 'tokenizer.chat_template'").render(SHORT)
    assert time.perf_counter() - start < 30  # most take milliseconds; without bounds, years
    message = str(raised.value)
    assert message.startswith("m.gguf: metadata 'tokenizer.chat_template': ")
    assert expected in message
    assert "\n" not in message


def test_a_template_s_own_refusal() -> None:
    with pytest.raises(HalfbyteError, match="t: the roles user and assistant must take turns"):
        ChatTemplate(TEMPLATES["brackets"], "t").render([*SHORT, *SHORT], **VARIABLES)
    with pytest.raises(HalfbyteError, match=r"^t: a b c{296}\.\.\.$"):
        ChatTemplate("{{ raise_exception('a\n  b ' ~ 'c' * 999) }}", "t").render([])


def test_a_long_conversation_is_not_hostile() -> None:
    """Many messages, or a long one: the bounds grow with the conversation."""
    many = [
        {"role": r, "content": f"{i} " * 20} for i in range(1000) for r in ("user", "assistant")
    ]
    long = [{"role": "user", "content": "word " * 400_000}]
    for name in ("chatml", "headers", "thinking"):
        template = ChatTemplate(TEMPLATES[name], "t")
        assert len(template.render(many, **VARIABLES)) > 100_000
        assert len(template.render(long, **VARIABLES)) > 1_999_000


def test_without_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "jinja2"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "halfbyte.text.chat.sandbox")
    with pytest.raises(UnsupportedError, match=r"pip install 'halfbyte\[chat\]'"):
        ChatTemplate("", "t")


def test_the_date() -> None:
    text = ChatTemplate("{{ strftime_now('%Y-%m') }}", "t").render([])
    assert text == datetime.now().strftime("%Y-%m")
