"""Modules under the names of other packages, for code that imports those.

A stand-in puts modules into `sys.modules`, and a finder into `importlib.metadata` that reports a
distribution: pip and micropip take it for installed, in whichever order packages arrive.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from halfbyte.errors import UnsupportedError

Contents = Mapping[str, Mapping[str, Any]]  # of modules, by their names


@dataclass(frozen=True)
class StandIn:
    """A package that halfbyte stands in for.

    Attributes
    ----------
    name, version : str
        The package, and its version with this interface, which others compare with the oldest one
        that they support.
    summary : str
        What the modules and the distribution say that they are.
    """

    name: str
    version: str
    summary: str

    def install(self, contents: Callable[[], Contents], function: str, force: bool) -> ModuleType:
        """Register the modules, and return the package.

        Parameters
        ----------
        contents : callable
            Returns the modules' contents.
        function : str
            The public function that does this, for the message.
        force : bool
            Also if the real package is installed or imported.

        Raises
        ------
        UnsupportedError
            The real package is installed or imported.
        """
        name = self.name
        present = sys.modules.get(name)
        if present is not None and getattr(present, "__halfbyte__", False):
            return present
        if not force and (present is not None or self._is_installed()):
            raise UnsupportedError(
                f"{name} is installed: use it, or take its place with {function}(force=True)"
            )
        for other in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
            del sys.modules[other]
        modules = self.modules(contents())
        sys.modules.update(modules)
        sys.meta_path.insert(0, _Metadata(self))
        return modules[name]

    def _is_installed(self) -> bool:
        try:
            return importlib.util.find_spec(self.name) is not None
        except ImportError:  # raised by a finder that blocks the name
            return False

    def modules(self, contents: Contents) -> dict[str, ModuleType]:
        """The modules, each an attribute of its package."""
        modules: dict[str, ModuleType] = {}
        for name, content in contents.items():
            module = ModuleType(name, self.summary)
            is_package = any(other.startswith(f"{name}.") for other in contents)
            module.__spec__ = ModuleSpec(name, None, origin="halfbyte", is_package=is_package)
            if is_package:
                module.__path__ = []  # a package without other modules
            module.__dict__.update(content)
            modules[name] = module
        for name, module in modules.items():
            parent, _, last = name.rpartition(".")
            if parent:
                setattr(modules[parent], last, module)
        package = modules[self.name]
        package.__dict__.update({"__version__": self.version, "__halfbyte__": True})
        return modules


def refused(module: str, name: str, instead: str = "") -> type:
    """A class or function that code may import, but not call.

    Parameters
    ----------
    instead : str
        What does the same, for the message.
    """

    def refuse(self: Any, *arguments: Any, **keywords: Any) -> None:
        raise UnsupportedError(f"{module}.{name} is not in halfbyte" + (instead and f": {instead}"))

    content = {"__init__": refuse, "__module__": module, "__doc__": "Refused."}
    return type(name, (), content)


def public(module: ModuleType) -> dict[str, Any]:
    """The public names that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


class _Distribution(importlib.metadata.Distribution):
    """The metadata that installers read."""

    def __init__(self, package: StandIn) -> None:
        self._package = package

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            message = EmailMessage()
            message["Metadata-Version"] = "2.1"
            message["Name"] = self._package.name
            message["Version"] = self._package.version
            message["Summary"] = self._package.summary
            return str(message)
        # Pyodide's record of a package's source: without it, micropip does not list the package.
        return "halfbyte" if filename in ("INSTALLER", "PYODIDE_SOURCE") else None

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parent / path


class _Metadata(importlib.metadata.DistributionFinder):
    """Finds the distribution, and no modules."""

    def __init__(self, package: StandIn) -> None:
        self._package = package

    def find_spec(self, *arguments: Any) -> None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = context.name if context is not None else None
        is_wanted = name is None or name.lower() == self._package.name
        return [_Distribution(self._package)] if is_wanted else []
