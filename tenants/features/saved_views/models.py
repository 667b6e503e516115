"""The table of saved views."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, Q
from django.db.models.functions import Lower

from tenants.models import Tenant
from tenants.rules.lists import LISTS, LONGEST_QUERY, OPERATOR_LISTS, ListPage

LONGEST_NAME = 60
QUERY = r"^[a-z_]+=[A-Za-z0-9%+_.~-]+(&[a-z_]+=[A-Za-z0-9%+_.~-]+)*$"
"""An address's query as `tenants.rules.lists.query_of` writes it: no other address, and no script."""


class SavedView(models.Model):
    """Filters of a list under a name."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, PROTECT, null=True, blank=True, help_text="Null: of an operator.")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")
    list = models.CharField(max_length=20, help_text="The name of the list.")
    name = models.CharField(max_length=LONGEST_NAME)
    query = models.CharField(max_length=LONGEST_QUERY, help_text="Its filters, as in an address.")
    is_shared = models.BooleanField(
        default=False, help_text="Whether everybody in the organisation, or each operator, has it."
    )
    created = models.DateTimeField()

    class Meta:
        ordering = ["list", Lower("name"), "id"]
        constraints = [
            models.UniqueConstraint(
                "tenant", "owner", "list", Lower("name"), name="saved_view_once", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=Q(list__in=sorted({*LISTS, *OPERATOR_LISTS})), name="saved_view_of_a_list"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="saved_view_named"),
            models.CheckConstraint(condition=Q(query__regex=QUERY), name="saved_view_is_a_query"),
        ]

    @property
    def page(self) -> ListPage:
        """The list that it shows."""
        return (OPERATOR_LISTS if self.tenant_id is None else LISTS)[self.list]

    @property
    def suffix(self) -> str:
        """Its address, below that of the organisation or of operators."""
        return f"{self.page.suffix}?{self.query}"
