"""HTML that cannot be broken by what it shows: text is escaped unless it was made by :func:`element`.

Names, labels and messages are what anybody with rights to some namespace has written. A template engine would do the
same with a dependency more; the page needs one function.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final, TypeAlias

_VOID: Final = frozenset({"meta", "link", "input", "br", "col"})
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What HTML does not allow in text, or what would show text in another order than it has."""


class Html(str):
    """Text that is markup already. Made here only, and of constants."""

    __slots__ = ()


Part: TypeAlias = str | int | None


def text(value: str) -> Html:
    """Text as markup that shows it; what cannot be shown becomes the replacement character."""
    return Html(escape(_CONTROLS.sub("\ufffd", value)))


def join(*parts: Part) -> Html:
    """Parts one after the other: markup as it is, all else as text; ``None`` is nothing."""
    return Html("".join(_markup(part) for part in parts))


def element(tag: str, *parts: Part, **attributes: str | float | bool | None) -> Html:
    """An element.

    Args:
        tag: its name, a constant.
        *parts: what is in it: markup as it is, all else as text; ``None`` is nothing.
        **attributes: their names are constants, a trailing underscore aside and others read as hyphens (``class_``,
            ``aria_label``); ``None`` and ``False`` leave one out, ``True`` gives it without a value.
    """
    opened = tag
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        opened += f" {name}" if value is True else f' {name}="{text(number(value))}"'
    if tag in _VOID:
        return Html(f"<{opened}>")
    return Html(f"<{opened}>{join(*parts)}</{tag}>")


def number(value: str | float) -> str:
    """A coordinate with at most two digits, so that it is the same on every machine; strings as they are."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _markup(part: Part) -> str:
    if part is None:
        return ""
    return part if isinstance(part, Html) else text(str(part))
