"""The app and its features."""

from django.apps import AppConfig

from tenants.features import FEATURES


class TenantsConfig(AppConfig):
    """Lets features add themselves to the core."""

    name = "tenants"

    def ready(self) -> None:
        """Adds their words."""
        FEATURES.imported("points")
