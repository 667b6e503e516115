"""Terms: what a command takes, declared once as a dataclass.

A service takes the terms, REST reads them from a body (`tenants.platform.rest.terms`) and pages read
them from a form (`tenants.web.terms_form`). A field says what people read next to it, and its
limits.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform

Asks = Literal["text", "paragraphs", "first_day", "last_day", "moment", "length", "url", "secret"]
Declared = TypeVar("Declared")


@dataclass(frozen=True, slots=True)
class Said:
    """What a page says of a field: without a label it has no input.

    `asks`: how a form asks for it. Instants are asked for as days in the reader's zone: the first,
    or the last, whose end is meant, or as a `moment` with its time; seconds as a `length` such as
    `1h 30m`. `example` stands in an
    empty input. `name` is that of the input, without it the field's; `reads(text, param=name)` reads
    what is typed.
    """

    label: str = ""
    hint: str = ""
    asks: Asks = "text"
    example: str = ""
    name: str = ""
    reads: Callable[..., object] | None = None


def term(  # noqa: PLR0913 (named parts of one declaration)
    label: str = "",
    hint: str = "",
    *,
    asks: Asks = "text",
    example: str = "",
    name: str = "",
    reads: Callable[..., object] | None = None,
    says: str = "",
    default: Any = MISSING,  # noqa: ANN401 (of the field's type)
    body: object = None,
    **limits: Any,  # noqa: ANN401 (options of the REST field)
) -> Any:  # noqa: ANN401 (as dataclasses.field)
    """Declares a field of terms; without a `default` it is required.

    `says` is its description in the OpenAPI document; `limits` are those of its REST field, of which
    a form knows `max_length`. `body` is a REST field in place of that of the type.
    """
    options = limits | ({"help_text": says} if says else {})
    metadata: dict[str, object] = {
        "said": Said(label, hint, asks, example, name, reads),
        "serializer_kwargs": options,
    }
    if body is not None:
        metadata["serializer_field"] = body
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(term,))
def terms(declared: type[Declared]) -> type[Declared]:
    """Makes a class the terms of a command: a frozen dataclass whose fields are keywords."""
    return dataclass(frozen=True, kw_only=True)(declared)
