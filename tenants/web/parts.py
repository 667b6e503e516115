"""Template tags of shared parts: icons, pills, fields, empty states."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import template
from django.forms import BoundField
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from tenants.platform.errors import Refused
from tenants.platform.nouns import unit_noun
from tenants.services.input_values import seconds_read, seconds_words

register = template.Library()


@register.simple_tag
def icon(name: str, size: str = "") -> SafeString:
    """Returns the icon `name` of the sprite; `size` is an additional class, such as `ic-s`."""
    return format_html(
        '<svg class="{}" aria-hidden="true"><use href="{}#i-{}"/></svg>',
        f"ic {size}" if size else "ic",
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
def pill(kind: str, icon_name: str, word: str) -> SafeString:
    """Returns a label with its icon in the colours of `kind`."""
    return format_html('<span class="pill {}">{}{}</span>', kind, icon(icon_name), word)


@register.simple_block_tag
def nothing(content: str, icon_name: str, title: str) -> SafeString:
    """Returns an empty state; the block says what to do next."""
    return format_html('<div class="empty">{}<b>{}</b>{}</div>', icon(icon_name), title, content)


@dataclass(frozen=True, slots=True)
class Field:
    """A labelled input of a form with its value, hint and error."""

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
    css: str = "inp"
    inputmode: str = ""
    maxlength: int | None = None
    choices: Iterable[tuple[object, object]] = ()


@register.simple_block_tag
def field(content: str, name: str, label: str, **more: Any) -> SafeString:  # noqa: ANN401 (a Field's)
    """Returns a labelled input; the block is its hint and may be empty.

    `bound` is a form field for value and first error; `refusal` is shown if it concerns this field.
    """
    shown = _field(name, label, content, more)
    return SafeString(render_to_string("parts/field.html", {"field": shown}))


@register.simple_block_tag
def select(content: str, name: str, label: str, **more: Any) -> SafeString:  # noqa: ANN401 (a Field's)
    """Returns a labelled select of `choices`, pairs of value and label; otherwise as `field`."""
    shown = _field(name, label, content, more)
    return SafeString(render_to_string("parts/select.html", {"field": shown}))


def _field(name: str, label: str, hint: str, more: dict[str, Any]) -> Field:
    bound: BoundField | None = more.pop("bound", None)
    if bound is not None:
        more |= {"value": bound.value(), "error": next(iter(bound.errors), "")}
    refusal: Refused | None = more.pop("refusal", None) or None
    if refusal is not None and refusal.param == name:
        more["error"] = refusal.sentence
    return Field(name, label, hint=hint.strip(), **{"id": name, **more})


@register.simple_tag
def fact(name: str, value: object, *, bad: object = False) -> SafeString:
    """Returns an entry of a list of facts; `bad` values stand out."""
    css = format_html(' class="{}"', "c-risk") if bad else ""
    return format_html("<div><dt>{}</dt><dd{}>{}</dd></div>", name, css, value)


@register.simple_tag
def kpi(name: str, value: object, unit: str = "", note: str = "", figure: str = "") -> SafeString:
    """Returns a key figure with its unit and a note. `figure` names it for programs."""
    return format_html(
        '<div class="kpi"><dt>{}</dt><dd class="v"{}>{}{}</dd>{}</div>',
        name,
        format_html(' data-figure="{}"', figure) if figure else "",
        value,
        format_html(" <small>{}</small>", unit) if unit else "",
        format_html('<dd class="d">{}</dd>', note) if note else "",
    )


MOST_ON_PHONES = 8
"""Rows of a long list that a phone shows at first; `parts.css` has the same number."""


@register.simple_tag
def all_rows(count: int, noun: str, most: int = MOST_ON_PHONES) -> SafeString | str:
    """Returns what shows all rows of a long list on a phone; it stands behind its element of class `few`.
    Wider screens show all rows at once."""
    if count <= most:
        return ""
    return format_html(
        '<label class="all-rows"><input type="checkbox" id="all-{}"> All {}</label>',
        slugify(noun),
        counted(count, noun),
    )


@register.filter
def unit(gpu_class: str) -> str:
    """What a class has, by its slug: `GPU` or `core`."""
    return unit_noun(gpu_class)


def counted(number: int | str, noun: str) -> str:
    """Returns the number, or its text, with its noun: `1 booking`, `2 bookings`, `1.5 GPUs`."""
    text = number if isinstance(number, str) else f"{number:,}"
    return f"{text} {noun}{'' if text == '1' else 's'}"


@register.filter
def spelled_out(text: str) -> str:
    """The duration of a form for a reader: `14d` is `14 days`; other text stays."""
    try:
        return seconds_words(seconds_read(text, param="duration"))
    except Refused:
        return text
