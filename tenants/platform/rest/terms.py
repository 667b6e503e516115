"""Bodies of requests and rows of answers, from the declarations of terms and models."""

import datetime as dt
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework_dataclasses.serializers import DataclassSerializer

from tenants.platform.rest.fields import (
    Clock,
    Day,
    Duration,
    Flag,
    Instant,
    Money,
    Number,
    Strict,
    Text,
    Whole,
)


class _Body(Strict, DataclassSerializer[Any]):
    serializer_field_mapping = {
        **DataclassSerializer.serializer_field_mapping,
        bool: Flag,
        float: Number,
        int: Whole,
        str: Text,
        Decimal: Money,
        dt.datetime: Instant,
        dt.date: Day,
        dt.time: Clock,
        dt.timedelta: Duration,
    }

    def create_field(self, field_name: str, extra_kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """The field, whose default is that of the dataclass."""
        default = self.dataclass_definition.fields[field_name].default
        if isinstance(default, tuple):
            default = list(default) or None
        shown = {"default": default} if isinstance(default, str | int | list) else {}
        return super().create_field(field_name, shown | extra_kwargs)

    def build_dataclass_field(self, field_name: str, type_info: Any) -> Any:  # noqa: ANN401
        """The body of nested terms, or of many."""
        return body_of_terms(type_info.base_type), {"many": type_info.is_many}

    def build_composite_field(self, field_name: str, type_info: Any, extra_kwargs: Any) -> Any:  # noqa: ANN401
        """A list, or the body of many nested terms."""
        if type_info.is_many and is_dataclass(type_info.base_type):
            return self.build_dataclass_field(field_name, type_info)
        return super().build_composite_field(field_name, type_info, extra_kwargs)


_bodies: dict[type[Any], type[Strict]] = {}


def body_of_terms(terms: type[Any]) -> type[Strict]:
    """The body that becomes an instance of the terms: `StandInIn` for `StandInTerms`, or `body_name`."""
    if terms not in _bodies:
        meta = type("Meta", (), {"dataclass": terms})
        name = getattr(terms, "body_name", f"{terms.__name__.removesuffix('Terms')}In")
        made: type[Strict] = type(name, (_Body,), {"Meta": meta, "__doc__": terms.__doc__})
        _bodies[terms] = extend_schema_serializer(component_name=name)(made)
    return _bodies[terms]


class Username(serializers.CharField):
    """The sign-in name of a person that a row refers to."""

    def bind(self, field_name: str, parent: Any) -> None:  # noqa: ANN401 (the framework's signature)
        """Reads the name of the person in the field of the same name."""
        self.source = f"{field_name}.get_username"
        super().bind(field_name, parent)


class Slug(serializers.CharField):
    """The slug of what a row refers to; null without one."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (the framework's options)
        super().__init__(**{"default": None, "allow_null": True, **options})

    def bind(self, field_name: str, parent: Any) -> None:  # noqa: ANN401 (the framework's signature)
        """Reads the slug of the object in the field of the same name."""
        self.source = f"{field_name}.slug"
        super().bind(field_name, parent)
