"""How REST shows what finished runs have shown of a kind of work."""

from typing import Any

from rest_framework import serializers


class WorkRateOut(serializers.Serializer[Any]):
    """Steps that a GPU did in an hour, in the finished runs of a project that said how far they were."""

    unit = serializers.CharField()
    per_gpu_hour = serializers.FloatField(help_text="The median of the runs.")
    low = serializers.FloatField(help_text="A quarter of the runs did less.")
    high = serializers.FloatField(help_text="A quarter of the runs did more.")
    runs = serializers.IntegerField()
    last = serializers.DateTimeField(help_text="The last report of the last of them.")
