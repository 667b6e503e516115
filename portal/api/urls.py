"""Addresses of the REST API and of the probes."""

from django.urls import include, path

from portal.api.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", include("portal.api.root")),
]
