"""Routes of the REST API and of the probes."""

from django.urls import include, path

from portal.api.health import healthz, readyz, statusz
from portal.api.metrics import metrics

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("statusz", statusz, name="statusz"),
    path("api/v1/", include("portal.api.root")),
]
