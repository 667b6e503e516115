"""REST of data sets."""

from typing import Any

from rest_framework import serializers

from allocation.features.datasets.services import DataSet, data_of_site
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Strict, Text

rest = Endpoints(Scope.BOOK, in_project=True)


class DataSetOut(serializers.Serializer[Any]):
    """A data set that some nodes have, so that a request may name it in `data`."""

    name = serializers.CharField()
    size_mb = serializers.IntegerField(allow_null=True, help_text="MiB. Null: not measured.")
    used = serializers.DateTimeField(
        allow_null=True, help_text="The newest use of a file of it that a node's file system knows."
    )
    nodes = serializers.ListField(child=serializers.CharField(), help_text="That have it.")


class DataSetsQuery(Strict):
    """A filter."""

    node = Text(max_length=63, required=False, help_text="Only those that this node has.")


@rest.rows(
    "data-sets",
    "Data sets that nodes have in their cache folders",
    DataSetOut,
    query=DataSetsQuery,
    kind="statement",
)
def list_data_sets(call: ApiView) -> list[DataSet]:
    """Lists the data sets of the site by name. What is in their files is known to nobody here."""
    with call.tx():
        node = call.query.get("node", "")
        return [each for each in data_of_site(call.now) if node in ("", *each.nodes)]


urlpatterns = rest.urls
