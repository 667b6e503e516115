"""All addresses: each app brings its own."""

from django.conf import settings
from django.urls import include, path

PARTS = ("portal.web", "portal.api", "tenants", "billing", "allocation")

urlpatterns = [
    path("", include(f"{part}.urls"))
    for part in PARTS
    if (settings.BASE_DIR / part.replace(".", "/") / "urls.py").exists()
]
