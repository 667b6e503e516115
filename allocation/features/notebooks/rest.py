"""REST of notebooks."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from allocation.features.notebooks.models import Notebook
from allocation.features.notebooks.services import (
    NotebookTerms,
    notebook_end,
    notebook_of,
    notebook_own,
    notebook_start,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import missing

rest = Endpoints(Scope.BOOK, in_project=True)


class NotebookOut(serializers.Serializer[Any]):
    """A notebook of a booking. It is its owner's alone."""

    id = serializers.UUIDField()
    program = serializers.CharField()
    node = serializers.CharField(source="node.name")
    state = serializers.ChoiceField(choices=Notebook.State.choices)
    reason = serializers.CharField(help_text="Why it ended or failed.")
    url = serializers.SerializerMethodField(
        help_text="Opens it in a browser that is signed in at the portal."
    )
    asked_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    def get_url(self, row: Notebook) -> str:
        """The address of the portal: no token opens a notebook."""
        return f"{settings.PUBLIC_URL}/t/{row.tenant.slug}/bookings/{row.booking.label}/notebook/open"


@rest.post("bookings/<str:reference>/notebook", "Start a notebook", NotebookOut, terms=NotebookTerms)
def start_notebook(call: ApiView, terms: NotebookTerms, reference: str) -> Notebook:
    """Starts a program with a web page on the devices of your running booking; it is ready seconds
    later. Returns the open one if there is one. It ends with the booking, and when that is paused."""
    return notebook_start(actor=call.actor, reference=reference, terms=terms, now=call.now)


@rest.get("bookings/<str:reference>/notebook", "Get the notebook", NotebookOut)
def get_notebook(call: ApiView, reference: str) -> Notebook:
    """Returns the newest notebook of your booking."""
    row = notebook_of(notebook_own(call.actor, reference))
    if row is None:
        raise missing("notebook")
    return row


@rest.delete("bookings/<str:reference>/notebook", "End the notebook")
def delete_notebook(call: ApiView, reference: str) -> None:
    """Ends its programs within seconds. What was not saved is lost."""
    notebook_end(actor=call.actor, reference=reference, now=call.now)


urlpatterns = rest.urls
