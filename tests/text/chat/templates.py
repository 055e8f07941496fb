"""Chat templates in the styles of today's models, and conversations."""

from __future__ import annotations

from typing import Any

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

BRACKETS = """\
{%- if messages[0].role == 'system' -%}
  {%- set instructions, rest = messages[0].content ~ '\\n\\n', messages[1:] -%}
{%- else -%}
  {%- set instructions, rest = '', messages -%}
{%- endif -%}
{%- for message in rest -%}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{- raise_exception('the roles user and assistant must take turns') -}}
  {%- endif -%}
  {%- if message.role == 'user' -%}
    {{- bos_token + '[INST] ' + (instructions if loop.first else '') + message.content | trim + ' [/INST]' -}}
  {%- else -%}
    {{- ' ' + message.content.strip() + ' ' + eos_token -}}
  {%- endif -%}
{%- endfor -%}
"""

HEADERS = """\
{%- macro turn(role, content) -%}
<|header|>{{ role }}<|end|>

{{ content | trim }}<|eot|>
{%- endmacro -%}
{{- bos_token -}}
{%- if tools is defined and tools -%}
  {{- turn('system', 'Tools: ' ~ tools | tojson(indent=2)) -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.content is string -%}
    {{- turn(message.role, message.content) -}}
  {%- else -%}
    {{- turn(message.role, message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\\n')) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|header|>assistant<|end|>\\n\\n' -}}
{%- endif -%}
"""

THINKING = """\
{%- set ns = namespace(last=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
  {%- set index = messages|length - 1 - loop.index0 %}
  {%- if ns.searching and message.role == "user" %}
    {%- set ns.searching = false %}
    {%- set ns.last = index %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.role == "assistant" %}
    {%- generation %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}
      {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
      {%- if loop.index0 > ns.last %}
        {%- set content = '<think>' ~ thought ~ '</think>' ~ content %}
      {%- endif %}
    {%- endif %}
    {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
    {%- endgeneration %}
  {%- elif loop.last and not enable_thinking|default(true) %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + ' /no_think<|im_end|>\\n' }}
  {%- else %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
  {%- endif %}
  {%- if loop.index > 1000 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TEMPLATES = {
    "chatml": CHATML, "brackets": BRACKETS, "headers": HEADERS, "thinking": THINKING,
}  # fmt: skip

SHORT: list[dict[str, Any]] = [{"role": "user", "content": '  Hello, "you" & <them>\n'}]
LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief. Grüße 🙂"},
    {"role": "user", "content": "What is 1 + 1?"},
    {"role": "assistant", "content": "<think>\nsums\n</think>\n\n2 "},
    {"role": "user", "content": "And {{ 7 * 7 }} {% raw %}?"},
]
TOOLS = [{"name": "clock", "parameters": {"zone": {"type": "string", "default": "<é>"}}}]

# Templates that attack, and a part of the message that refuses them.
HOSTILE = {
    "loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "runs for too long"),
    "doubling by ~": ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "runs for too long"),
    "doubling by +": ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "runs for too long"),
    "doubling lists": ("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "runs for too long"),
    "doubling in a block": ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}", "runs for too long"),
    "much text": ("{% for a in range(90000) %}" + "y" * 1000 + "{% endfor %}", "runs for too long"),
    "repetition": ("{{ 'a' * 10000000000 }}", "runs for too long"),
    "repetition of a list": ("{{ 10000000000 * [1] }}", "runs for too long"),
    "power": ("{{ 9 ** 9 ** 9 }}", "operator '**' is not offered"),
    "growing numbers": ("{% set ns = namespace(x=3) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", "more than 64 bits"),
    "printf": ("{{ '%1000000000d' % 1 }}", "operator '%' is not offered"),
    "printf by a test": ("{{ '%1000000000d' is odd }}", "expected a whole number, found str"),
    "format": ("{{ '{:1000000000}'.format(1) }}", "reaches for 'format' of a str"),
    "padding": ("{{ 'a'.center(10000000000) }}", "reaches for 'center' of a str"),
    "padding by a filter": ("{{ 'a'|center(10000000000) }}", "No filter named 'center'"),
    "replace": ("{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}", "runs for too long"),
    "replace by a filter": ("{% set x = 'a' * 1000000 %}{{ x|replace('a', x) }}", "runs for too long"),
    "join": ("{{ ('a' * 1000000).join(range(100000)|map('string')) }}", "runs for too long"),
    "join by a filter": ("{{ range(100000)|join('a' * 1000000) }}", "runs for too long"),
    "indent": ("{{ ('a\n' * 100000)|indent(100000) }}", "runs for too long"),
    "indent of JSON": ("{{ messages|tojson(indent=1000000000) }}", "expected 0 to 16"),
    "towers compared": ("{% set ns = namespace(x=[], y=[]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "runs for too long"),
    "a tower as JSON": ("{% set ns = namespace(x=[]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}", "runs for too long"),
    "a tower as a key": ("{% set ns = namespace(x=()) %}{% for a in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}", "runs for too long"),
    "slices": ("{% set x = range(100000)|list %}{% for a in range(100000) %}{% set y = x[1:] %}{% endfor %}", "runs for too long"),
    "searching": ("{% set x = 'a' * 1000000 %}{% for a in range(100000) %}{% if x ~ 'b' in x %}{% endif %}{% endfor %}", "runs for too long"),
    "recursion": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    "recursive loops": ("{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}", "recursive loops are not offered"),
    "nested brackets": ("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}", "recursion"),
    "a long template": ("a" * 300_000, "300000 characters: expected at most"),
    "a class": ("{{ ''.__class__.__mro__ }}", "reaches for '__class__' of a str"),
    "a class by index": ("{{ ''['__class__'] }}", "reaches for '__class__' of a str"),
    "a class by a filter": ("{{ messages|map(attribute='__class__')|list }}", "reaches for '__class__' of a dict"),
    "a function's globals": ("{{ strftime_now.__globals__ }}", "reaches for '__globals__' of a function"),
    "the template's own": ("{{ self.__init__ }}", "reaches for '__init__'"),
    "changing the messages": ("{{ messages.append(1) }}", "reaches for 'append' of a list"),
    "another file": ("{% include '/etc/passwd' %}", "no loader"),
    "a large range": ("{{ range(1000000000) }}", "Range too big"),
    "half a template": ("{{ x", "unexpected end of template"),
    "nothing there": ("{{ nothing.x }}", "'nothing' is undefined"),
    "division": ("{{ 1 / 0 }}", "division by zero"),
}  # fmt: skip
