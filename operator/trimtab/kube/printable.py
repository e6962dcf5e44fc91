"""Escapes control characters in text from tenants, for terminals and text logs.

A name, an annotation or a message may contain escape sequences that clear the screen, set colours or forge log lines.
They are replaced with visible escapes, as Go's ``%q`` writes them.
"""

from __future__ import annotations

import re
from typing import Final

CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters of ASCII and Latin-1, line separators, lone surrogates, and bidirectional formatting
characters."""

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""Replace control characters, including line feeds, with visible escapes such as ``\x1b``."""
    return CONTROLS.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Replace control characters, except line feeds, with visible escapes."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _SHORT.get(character) or (rf"\x{number:02x}" if number < 0x100 else rf"\u{number:04x}")
