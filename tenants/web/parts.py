"""Template tags of the parts that every page is made of: symbols, pills, fields, empty lists."""

import re
from dataclasses import dataclass
from typing import Any

from django import template
from django.forms import BoundField
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tenants.platform.errors import Refused

register = template.Library()
INDENTATION = re.compile(r"\n\s*")


@register.simple_tag
def icon(name: str, size: str = "") -> SafeString:
    """Returns the symbol `name` of the sprite; `size` is one more class, such as `ic-s`."""
    return format_html(
        '<svg class="{}" aria-hidden="true"><use href="{}#i-{}"/></svg>',
        f"ic {size}" if size else "ic",
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
def pill(kind: str, icon_name: str, word: str) -> SafeString:
    """Returns a word with its symbol in the colours of `kind`."""
    return format_html('<span class="pill {}">{}{}</span>', kind, icon(icon_name), word)


@register.simple_block_tag
def nothing(content: str, icon_name: str, title: str) -> SafeString:
    """Returns what stands in place of an empty list; the block says what to do next."""
    return format_html('<div class="empty">{}<b>{}</b>{}</div>', icon(icon_name), title, content)


@register.simple_block_tag
def unindented(content: str) -> SafeString:
    """Returns the block without indentation, which a page of thousands of elements would repeat."""
    return SafeString(INDENTATION.sub("\n", content))


@dataclass(frozen=True, slots=True)
class Field:
    """A labelled input of a form: what is in it, its hint, and what is wrong with it."""

    name: str
    label: str
    value: object = ""
    hint: str = ""
    error: str = ""
    required: bool = True
    type: str = "text"
    id: str = ""
    placeholder: str = ""
    autocomplete: str = "off"


@register.simple_block_tag
def field(content: str, name: str, label: str, **more: Any) -> SafeString:  # noqa: ANN401 (a Field's)
    """Returns a labelled input; the block is its hint, and may be empty.

    `bound` is a field of a form, for its value and its first error; `refusal` is shown here if it
    is about this field.
    """
    bound: BoundField | None = more.pop("bound", None)
    if bound is not None:
        more |= {"value": bound.value(), "error": next(iter(bound.errors), "")}
    refusal: Refused | None = more.pop("refusal", None) or None
    if refusal is not None and refusal.param == name:
        more["error"] = refusal.sentence
    shown = Field(name, label, hint=content.strip(), **{"id": name, **more})
    return SafeString(render_to_string("parts/field.html", {"field": shown}))
