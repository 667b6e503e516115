"""Kinds of work and how fast each goes on every class."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.fleet.catalogue import work_speeds
from allocation.services.record.workloads import speeds_set
from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.fields import Strict, Whole
from tenants.platform.schema import described, page
from tenants.platform.wall import operator_tx


class WorkloadOut(serializers.Serializer[Any]):
    """A kind of work. Speeds are thousandths of each other: 450 beside 1000 takes 1000/450 as
    long."""

    workload = serializers.CharField()
    speeds = serializers.DictField(child=serializers.IntegerField())


class SpeedsIn(Strict):
    """Thousandths by class; without any the kind of work is gone."""

    speeds = serializers.DictField(child=Whole(min_value=1, max_value=1_000_000))


class Workloads(ApiView):
    """Every kind of work that is known."""

    @described("list_workloads", "Kinds of work with their speeds", answer=page(WorkloadOut))
    def get(self, request: Request) -> Response:
        """All of them."""
        with self.tx():
            rows = [{"workload": name, "speeds": each} for name, each in work_speeds().items()]
            return list_response(WorkloadOut(rows, many=True).data)


class WorkloadOne(ApiView):
    """One kind of work."""

    @described(
        "set_workload", "State how fast a kind of work goes on each class (operators)",
        answer=WorkloadOut, request=SpeedsIn,
    )  # fmt: skip
    def put(self, request: Request, slug: str) -> Response:
        """The speeds after the change."""
        self.require_operator()
        sent = self.sent(SpeedsIn)
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            speeds = speeds_set(
                operator=operator, workload=slug, speeds=sent["speeds"], now=self.now
            )
            return Response(WorkloadOut({"workload": slug, "speeds": speeds}).data)
