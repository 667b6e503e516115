"""The app and its features."""

from django.apps import AppConfig

from tenants.features import FEATURES


class TenantsConfig(AppConfig):
    """Loads the features with the app: their models, and what they add to the core."""

    name = "tenants"

    def import_models(self) -> None:
        """Imports the models of the core, and then those of features."""
        super().import_models()
        FEATURES.imported("models")

    def ready(self) -> None:
        """Adds their words."""
        FEATURES.imported("points")
