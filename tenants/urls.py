"""Pages about people, shares, tiers and tokens."""

from django.urls import path

from tenants.web.people import people
from tenants.web.settings import settings
from tenants.web.shares import ops_quotas, quotas
from tenants.web.tenants import ops_tenants
from tenants.web.tiers import ops_tiers, tiers

urlpatterns = [
    path("t/<slug:tenant>/people", people, name="people"),
    path("t/<slug:tenant>/quotas", quotas, name="quotas"),
    path("t/<slug:tenant>/tiers", tiers, name="tiers"),
    path("t/<slug:tenant>/settings", settings, name="settings"),
    path("ops/tiers", ops_tiers, name="ops-tiers"),
    path("ops/quotas", ops_quotas, name="ops-quotas"),
    path("ops/tenants", ops_tenants, name="ops-tenants"),
]
