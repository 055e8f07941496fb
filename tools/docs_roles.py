"""Roles in docstrings, such as :class:`Sampler`, as links of the site (an extension of griffe).

A name is looked up from the place of the docstring, as Python would. It becomes a link if the site
has it, and code otherwise; an unknown name is a warning, with which `make docs` fails.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|data|func|meth|mod):`(~?)([\w.]+)`")
_log = logging.getLogger("mkdocs.plugins.docs_roles")


class Roles(griffe.Extension):
    """Rewrites the docstrings of a package after it is loaded."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Go through everything that the package defines itself."""
        for each in _objects(pkg):
            if each.docstring:
                each.docstring.value = _ROLE.sub(partial(_link, each, pkg), each.docstring.value)


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if isinstance(member, griffe.Object):  # and not an alias of one
            yield from _objects(member)


def _link(at: griffe.Object, package: griffe.Module, match: re.Match[str]) -> str:
    short, name = match.groups()
    path = _path(name, at, package)
    if path is None:
        _log.warning("%s: a role names %r, which does not exist", at.path, name)
        return f"`{name}`"
    text = name.rpartition(".")[2] if short or name.startswith(f"{package.name}.") else name
    return f'<autoref identifier="{path}" optional><code>{text}</code></autoref>'


def _path(name: str, at: griffe.Object, package: griffe.Module) -> str | None:
    """The full name, looked up from the object outwards, or from the top."""
    scope: griffe.Object | None = at
    if name.startswith(f"{package.name}."):
        scope, name = package, name.removeprefix(f"{package.name}.")
    while scope is not None:
        bases = scope.mro() if isinstance(scope, griffe.Class) else []
        for where in (scope, *bases):
            try:
                return str(where[name].canonical_path)
            except (KeyError, griffe.AliasResolutionError):
                continue
        scope = scope.parent
    return None
