"""Chat templates in Jinja's sandbox, with the work of a rendering bounded.

A template is code by the author of a file. Jinja's sandbox keeps it from Python's objects, but
not from running for ever, from making a terabyte of text in forty steps, or from crashing the
process by deep recursion in C; and in a browser no timer could stop it. So everything that a
template can use is on a list here: nodes of its syntax tree, operators, filters, tests, functions,
attributes of values, and what may be iterated. Each pays a `meter` before it works, by the sizes
of its operands (`in`, `strip` and `sort` by their products); bodies of loops and macros pay by
their length. All else is refused. In case an estimate is wrong, the meter also looks at the
thread's clock. None of this needs a second process, which Pyodide and frozen applications lack.

The names are those of chat templates in Hugging Face's transformers, without those for web pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from numbers import Number
from typing import Any

from jinja2 import TemplateRuntimeError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from halfbyte.text.chat.filters import metered_filters, metered_tests
from halfbyte.text.chat.meter import NODE, STEP, TEXT_METHODS, Meter

WORK = 20_000_000  # units of a rendering: about a second at most
WORK_PER_CHARACTER = 20  # further units for each character of a conversation
MAX_NODES = 20_000  # of a template's syntax tree
MAX_NESTED = 100  # depth of nodes, brackets and signs in an expression
_TOO_DEEP = f"nested more than {MAX_NESTED} deep: recursion without need"
_BLOCKS = {"call", "filter", "for", "generation", "if", "macro", "with"}
_PATTERN = 100  # characters of a date's pattern

_ATTRIBUTES: dict[type, set[str] | dict[str, Any]] = {
    str: TEXT_METHODS,
    dict: {"get", "items", "keys", "values"},
    LoopContext: {
        "changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length",
        "nextitem", "previtem", "revindex", "revindex0",
    },
}  # fmt: skip
_NODES = (
    nodes.And, nodes.Assign, nodes.AssignBlock, nodes.BinExpr, nodes.Break, nodes.Call,
    nodes.CallBlock, nodes.Compare, nodes.Concat, nodes.CondExpr, nodes.Const, nodes.Continue,
    nodes.Dict, nodes.Filter, nodes.FilterBlock, nodes.For, nodes.Getattr, nodes.Getitem, nodes.If,
    nodes.Keyword, nodes.List, nodes.Macro, nodes.NSRef, nodes.Name, nodes.Operand, nodes.Output,
    nodes.Pair, nodes.Scope, nodes.Slice, nodes.Template, nodes.TemplateData, nodes.Test,
    nodes.Tuple, nodes.UnaryExpr, nodes.With,
)  # fmt: skip
_NO_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class RaisedError(TemplateRuntimeError):
    """The template refused the conversation, by `raise_exception`."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a meter; one rendering at a time."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        # Constants are not folded: that would run filters without the meter.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False,
            extensions=[Generation, Nesting, LoopControlExtension],
        )  # fmt: skip
        self.meter = meter = Meter()
        self.filters = metered_filters(meter, self.filters) | _operators(meter)
        self.tests = metered_tests(meter, self.tests)
        self.globals = {
            "range": self.globals["range"], "dict": self._dict, "namespace": self._namespace,
            "raise_exception": _raise, "strftime_now": _now,
        }  # fmt: skip

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _check(tree)
        return tree

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_Meters().visit(source), *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods of known work that change nothing; no attributes of other values."""
        if isinstance(obj, Namespace):  # it has only what the template stored there
            return super().is_safe_attribute(obj, attr, value)
        allowed = next((names for kind, names in _ATTRIBUTES.items() if isinstance(obj, kind)), ())
        return attr in allowed and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """Raise at once, not when the value is used."""
        raise SecurityError(f"reaches for {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        """Do nothing: `format` is not among the attributes of a string."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item; its key is paid for."""
        self.meter.read(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call, paying for a step and for what a method or a function reads."""
        meter = __self.meter
        meter.take(STEP + len(args) + len(kwargs))
        if not isinstance(__obj, Macro):
            meter.read(args, kwargs)
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            meter.read(text)
            TEXT_METHODS[__obj.__name__](meter, text, *args, *kwargs.values())
            if __obj.__name__ == "join" and args:
                args = (list(meter.counted(args[0])),)
                meter.read(args)
        with meter.call():
            return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator; a repetition is paid for, and numbers have at most 64 bits."""
        values = (left, right)
        for value in values:
            self.meter.size(value)
            if isinstance(value, int) and abs(value) >> 64:
                raise SecurityError("a number has more than 64 bits")
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"operator '{operator}' is not offered here")
        if not self._combine(operator, left, right):
            types = " and ".join(type(value).__name__ for value in values)
            raise SecurityError(f"operator '{operator}' is not offered between {types}")
        return super().call_binop(context, operator, left, right)

    def _combine(self, operator: str, left: Any, right: Any) -> bool:
        """Whether an operator takes these operands; pays for a repetition."""
        if isinstance(left, Undefined) or isinstance(right, Undefined):
            return True  # Jinja raises the error
        if isinstance(left, Number) and isinstance(right, Number):
            return True
        if operator == "+":
            return any(isinstance(left, k) and isinstance(right, k) for k in (str, list, tuple))
        if operator == "*":
            for values, count in ((left, right), (right, left)):
                if isinstance(values, str | list | tuple) and isinstance(count, int):
                    weight = 1 if isinstance(values, str) else NODE
                    self.meter.take(weight * len(values) * max(count, 0))
                    return True
        return False

    def _dict(self, content: Any = (), **named: Any) -> dict[Any, Any]:
        pairs = content.items() if isinstance(content, Mapping) else self.meter.counted(content)
        return {self.meter.key(key): value for key, value in pairs} | named

    def _namespace(self, content: Any = (), **named: Any) -> Namespace:
        return Namespace(self._dict(content, **named))


class Nesting(Extension):
    """Bounds the parser's recursion: blocks, brackets, and signs before values."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The tokens, unchanged."""
        blocks = brackets = signs = 0
        first = False  # the first token of a block is its name
        for token in stream:
            if first and token.value != "endset":  # a `set` may have no body
                blocks += (token.value in _BLOCKS) - token.value.startswith("end")
            first = token.type == "block_begin"
            signs = 0 if first or token.type == "variable_begin" else signs + (
                token.type in ("add", "sub") or token.value in ("not", "else")
            )  # fmt: skip
            brackets += token.type in ("lparen", "lbracket", "lbrace")
            brackets -= token.type in ("rparen", "rbracket", "rbrace")
            if max(blocks, brackets, signs) > MAX_NESTED:
                raise TemplateSyntaxError(_TOO_DEEP, token.lineno)
            yield token


class Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``, which marks text that a model wrote."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _check(tree: nodes.Template) -> None:
    """Refuse nodes that are not listed, and trees that would take long to compile."""
    stack: list[tuple[nodes.Node, int]] = [(tree, 0)]
    count = 0
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > MAX_NESTED:
            raise SecurityError(_TOO_DEEP)
        if count > MAX_NODES:
            raise SecurityError(f"more than {MAX_NODES} parts of its syntax")
        if isinstance(node, _NO_FILES):
            raise SecurityError("other templates: there is no loader for them here")
        if not isinstance(node, _NODES):
            raise SecurityError(f"a {type(node).__name__.lower()} is not offered here")
        stack += [(child, depth + 1) for child in node.iter_child_nodes()]


class _Meters(NodeTransformer):
    """Puts the meter's filters, whose names no template can write, around costly operations.

    The others cost a little for each node, paid where they may run repeatedly: in the bodies of
    loops, macros and calls.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise SecurityError("recursive loops are not offered here")
        weight = _weight([node.test] if node.test else [])
        self.generic_visit(node)
        node.iter = _filter("(count)", node.iter, nodes.Const(weight))
        return self._pays(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        return self._pays(node)

    visit_CallBlock = visit_Macro

    def _pays(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        """Pay for a body at its beginning."""
        paid = _filter("(pay)", nodes.Const(_weight(node.body), lineno=node.lineno))
        node.body = [nodes.ExprStmt(paid, lineno=node.lineno), *node.body]
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [_filter("(read)", value) for value in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter("(concat)", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        first = node.ops[0]
        if any(operand.op in ("in", "notin") for operand in node.ops):
            if len(node.ops) > 1:
                raise SecurityError("'in' among other comparisons is not offered here")
            contains = _filter("(in)", node.expr, first.expr)
            return contains if first.op == "in" else nodes.Not(contains, lineno=node.lineno)
        node.expr = _filter("(read)", node.expr)
        for operand in node.ops:
            operand.expr = _filter("(read)", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filter("(size)", node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _filter("(key)", node.key)
        return node


def _filter(name: str, value: Any, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


def _weight(body: list[Any]) -> int:
    """Number of nodes in a part of a syntax tree."""
    return sum(1 + _weight(list(node.iter_child_nodes())) for node in body)


def _operators(meter: Meter) -> dict[str, Any]:
    """The meter's methods as filters."""

    def read(value: Any) -> Any:
        meter.read(value)
        return value

    def size(value: Any) -> Any:
        meter.size(value)
        return value

    def concat(values: list[Any]) -> str:
        meter.read(values)
        return "".join(map(str, values))

    def pay(nodes: int) -> None:
        meter.take(STEP + NODE * nodes)

    return {
        "(read)": read, "(size)": size, "(concat)": concat, "(pay)": pay, "(in)": meter.contains,
        "(key)": meter.key, "(count)": meter.counted,
    }  # fmt: skip


def _raise(message: Any) -> None:
    raise RaisedError(str(message))


def _now(pattern: str) -> str:
    if len(pattern) > _PATTERN:
        raise SecurityError(f"strftime_now: a pattern of {len(pattern)} characters")
    return datetime.now().strftime(pattern)
