"""The part of a session that describes its model and checks the names and feeds of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halfbyte.onnx.files.model import Model
from halfbyte.onnx.session.errors import InvalidArgument, TypeProblem, ValueProblem
from halfbyte.onnx.session.feeds import checked_feed
from halfbyte.onnx.session.metadata import ModelMetadata, NodeArg, model_metadata, node_arg
from halfbyte.onnx.session.options import SessionOptions
from halfbyte.onnx.session.providers import PROVIDER, check_providers

_OVERRIDABLE_SINCE = 4  # IR version: before, every initializer had to be among the inputs


class Described:
    """The part of a session that runs nothing."""

    def __init__(self, model: Model, options: SessionOptions) -> None:
        self._model, self._options = model, options
        graph = model.graph
        constants = graph.initializers
        self._inputs = {v.name: v for v in graph.inputs if v.name not in constants}
        overridable = constants if model.ir_version >= _OVERRIDABLE_SINCE else {}
        self._overridable = {v.name: v for v in graph.inputs if v.name in overridable}
        self._outputs = [v.name for v in graph.outputs]

    @property
    def model(self) -> Model:
        """The model as it was read from the file."""
        return self._model

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run needs."""
        return [node_arg(v) for v in self._inputs.values()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have a default value: initializers."""
        return [node_arg(v) for v in self._overridable.values()]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs."""
        return [node_arg(v) for v in self._model.graph.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """The file's information about itself."""
        return model_metadata(self._model)

    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._options

    def get_providers(self) -> list[str]:
        """The processor only."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the processor's provider: none."""
        return {PROVIDER: {}}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Warn of providers that do not exist here; nothing else happens."""
        check_providers(providers, provider_options)

    def disable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    def enable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    # ---- arguments of a run ----------------------------------------------------------------------

    def _wanted(self, names: Sequence[str] | None) -> list[str]:
        if isinstance(names, str):
            raise TypeProblem(f"output_names {names!r}: expected a list of names, or None")
        wanted: list[Any] = list(names) if names is not None and len(names) else self._outputs
        known = frozenset(self._outputs)
        unknown = [name for name in wanted if not isinstance(name, str) or name not in known]
        if unknown:
            raise InvalidArgument(
                f"{self._model.path}: Invalid output name: {unknown[0]!r}, expected one of "
                f"{self._outputs}"
            )
        return wanted

    def _checked(self, input_feed: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(input_feed, Mapping):
            raise TypeProblem(
                f"{self._model.path}: a feed of type {type(input_feed).__name__}, expected a dict "
                "of name to array"
            )
        optional = {n for n, v in self._inputs.items() if v.type and v.type.kind == "optional"}
        missing = [n for n in self._inputs if n not in input_feed and n not in optional]
        if missing:
            raise ValueProblem(
                f"Required inputs ({missing}) are missing from input feed ({list(input_feed)})."
            )
        feeds: dict[str, Any] = dict.fromkeys(optional)
        for name, value in input_feed.items():
            info = self._inputs.get(name) or self._overridable.get(name)
            if info is None:
                raise InvalidArgument(
                    f"{self._model.path}: Invalid input name: {name!r}, expected one of "
                    f"{[*self._inputs, *self._overridable]}"
                )
            feeds[name] = checked_feed(value, info, f"{self._model.path}: input {name!r}")
        return feeds
