"""Serializers that only render."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from rest_framework import serializers

Render = Callable[[Any], Any]


class Shape(serializers.Serializer[Any]):
    """A serializer of mappings: each field is the value under its own name, and None stays None.

    It knows how to render each field after the first time. Django REST framework looks up anew, for
    each value, where it may come from.
    """

    def to_representation(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        """Renders the values. Raises KeyError for one that is missing."""
        return {
            name: None if (value := instance[name]) is None else render(value)
            for name, render in self._renders
        }

    @cached_property
    def _renders(self) -> tuple[tuple[str, Render], ...]:
        return tuple((name, field.to_representation) for name, field in self.fields.items())
