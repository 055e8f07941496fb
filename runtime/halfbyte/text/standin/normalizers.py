"""`tokenizers.normalizers`: steps that change a text before it is split."""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field
from halfbyte.formats.tokens import write_bytes
from halfbyte.text.standin.alignment import replaced
from halfbyte.text.standin.components import (
    REQUIRED,
    WHERE,
    Component,
    Steps,
    custom_class,
    pattern_of,
)
from halfbyte.text.standin.normalized import NormalizedString
from halfbyte.text.tokenizers.characters import BertCharacters
from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.normalizers import TABLES
from halfbyte.text.tokenizers.regexes import compiled


class Normalizer(Component):
    """A step, or several."""

    KIND = "normalizer"
    TYPES: ClassVar[dict[str, type[Component]]] = {}

    def normalize(self, normalized: NormalizedString) -> None:
        """Change a text."""
        self.use().normalize(normalized)

    def normalize_str(self, sequence: str) -> str:
        """The changed text."""
        text = NormalizedString(sequence)
        self.normalize(text)
        return text.text

    @staticmethod
    def custom(obj: Any) -> Normalizer:
        """A normalizer of an object with `normalize(NormalizedString)`."""
        return custom_class(Normalizer, "normalize")(obj)  # type: ignore[return-value]


class _Table(Normalizer):
    """Replaces characters one by one."""

    def make(self) -> Any:
        return TABLES[self.TYPE]()

    def normalize(self, normalized: NormalizedString) -> None:
        normalized.translate(self.use())


class Lowercase(_Table):
    """Replaces capitals."""

    TYPE = "Lowercase"


class StripAccents(_Table):
    """Removes marks; for decomposed text."""

    TYPE = "StripAccents"


class Nmt(_Table):
    """Removes control characters, as for machine translation."""

    TYPE = "Nmt"


class BertNormalizer(_Table):
    """BERT's cleaning."""

    TYPE = "BertNormalizer"
    FIELDS: ClassVar[dict[str, Any]] = {
        "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True
    }  # fmt: skip

    def make(self) -> dict[int, str]:
        clean, chinese, strip, lowercase = self.fields.values()
        accents = lowercase if strip is None else strip
        return BertCharacters(lowercase, accents, clean_text=clean, chinese=chinese)


class _Form(Normalizer):
    """One of Unicode's normal forms."""

    def make(self) -> None:
        return None

    def normalize(self, normalized: NormalizedString) -> None:
        normalized.normal_form(self.TYPE)  # type: ignore[arg-type]


class NFC(_Form):
    """Composed characters."""

    TYPE = "NFC"


class NFD(_Form):
    """Decomposed characters."""

    TYPE = "NFD"


class NFKC(_Form):
    """Composed characters, compatible ones replaced."""

    TYPE = "NFKC"


class NFKD(_Form):
    """Decomposed characters, compatible ones replaced."""

    TYPE = "NFKD"


class Replace(Normalizer):
    """Replaces a string, or the matches of a regular expression."""

    TYPE = "Replace"
    FIELDS: ClassVar[dict[str, Any]] = {"pattern": REQUIRED, "content": REQUIRED}

    def read(self, name: str, value: Any) -> Any:
        return pattern_of(value) if name == "pattern" else value

    def make(self) -> Any:
        field(WHERE, self.fields, "content", str, "normalizer.")
        return compiled(WHERE, self.fields, "normalizer.")

    def normalize(self, normalized: NormalizedString) -> None:
        normalized.replace_matches(self.use(), self.fields["content"])


class Prepend(Normalizer):
    """Puts a string before a text that is not empty."""

    TYPE = "Prepend"
    FIELDS: ClassVar[dict[str, Any]] = {"prepend": "\u2581"}

    def make(self) -> str:
        return field(WHERE, self.fields, "prepend", str, "normalizer.")

    def normalize(self, normalized: NormalizedString) -> None:
        normalized.prepend(self.use())


class Strip(Normalizer):
    """Removes whitespace at the ends."""

    TYPE = "Strip"
    FIELDS: ClassVar[dict[str, Any]] = {"left": True, "right": True}
    NAMES: ClassVar[dict[str, str]] = {"left": "strip_left", "right": "strip_right"}

    def make(self) -> tuple[bool, bool]:
        return self.fields["left"], self.fields["right"]

    def normalize(self, normalized: NormalizedString) -> None:
        normalized.strip(*self.use())


class Precompiled(Normalizer):
    """SentencePiece's replacements."""

    TYPE = "Precompiled"
    FIELDS: ClassVar[dict[str, Any]] = {"precompiled_charsmap": REQUIRED}

    def read(self, name: str, value: Any) -> Any:
        return base64.b64encode(bytes(value)).decode()

    def shown(self, name: str, value: Any) -> Any:
        return base64.b64decode(value)

    def make(self) -> Charsmap | str:
        where = "'normalizer.precompiled_charsmap'"
        text = self.fields["precompiled_charsmap"] or ""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise FormatError(f"{WHERE}: {where}: not base64") from None
        return Charsmap(data, f"{WHERE}: {where}") if data else ""

    def normalize(self, normalized: NormalizedString) -> None:
        charsmap = self.use()
        if isinstance(charsmap, Charsmap):
            changes = replaced(charsmap, normalized.text)
            if changes is not None:
                normalized.transform(changes)


class ByteLevel(Normalizer):
    """Writes bytes as visible characters."""

    TYPE = "ByteLevel"

    def make(self) -> None:
        return None

    def normalize(self, normalized: NormalizedString) -> None:
        pairs = zip(normalized.text, normalized.spans, strict=True)
        normalized.spans = [span for c, span in pairs for _ in c.encode()]
        normalized.text = write_bytes(normalized.text.encode())


class Sequence(Steps, Normalizer):
    """Steps in order."""

    TYPE = "Sequence"
    FIELDS: ClassVar[dict[str, Any]] = {"normalizers": REQUIRED}

    def normalize(self, normalized: NormalizedString) -> None:
        for step in self:
            step.normalize(normalized)


NORMALIZERS = {"nfc": NFC, "nfd": NFD, "nfkc": NFKC, "nfkd": NFKD}


def unicode_normalizer_from_str(normalizer: str) -> Normalizer:
    """A normal form, by its name in small letters."""
    if normalizer not in NORMALIZERS:
        raise ValueError(f"expected one of {', '.join(NORMALIZERS)}, found {normalizer[:40]!r}")
    return NORMALIZERS[normalizer]()
