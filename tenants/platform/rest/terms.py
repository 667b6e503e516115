"""Bodies of requests and rows of answers, from the declarations of terms and models."""

import datetime as dt
from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework_dataclasses.serializers import DataclassSerializer

from tenants.platform.rest.fields import Day, Duration, Flag, Instant, Money, Number, Strict, Text, Whole


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
        dt.timedelta: Duration,
    }


def body_of_terms(terms: type[object]) -> type[Strict]:
    """The body that becomes an instance of the terms: `StandInIn` for `StandInTerms`."""
    meta = type("Meta", (), {"dataclass": terms})
    name = f"{terms.__name__.removesuffix('Terms')}In"
    made: type[Strict] = type(name, (_Body,), {"Meta": meta, "__doc__": terms.__doc__})
    return extend_schema_serializer(component_name=name)(made)


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
