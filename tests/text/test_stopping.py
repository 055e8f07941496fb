"""Stop strings in a stream of text: the pieces in which it arrives make no difference."""

from __future__ import annotations

import pytest

from halfbyte.text.stopping import StopStrings


@pytest.mark.parametrize("strings", ["<end>", ["<end>", "d> two"], ["<end> t", "<end>"]])
def test_a_text_cut_anywhere(strings: str | list[str]) -> None:
    text = "one <e<end> two"
    for cut in range(len(text) + 1):
        stops = StopStrings(strings)
        before = stops.push(text[:cut])
        after = "" if stops.reached else stops.push(text[cut:])
        assert before + after == "one <e", cut
        assert stops.reached


@pytest.mark.parametrize("strings", ["<end>", ["<end>", "one!"]])
def test_the_beginning_of_a_stop_string_at_the_end(strings: str | list[str]) -> None:
    """It is held back until the text ends, and then returned."""
    stops = StopStrings(strings)
    assert [stops.push(piece) for piece in ("one", " <", "en", "d")][1:] == [
        "one " if "one!" in strings else " ", "", ""
    ]  # fmt: skip
    assert stops.flush() == "<end"
    assert not stops.reached
