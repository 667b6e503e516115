"""The app and its features."""

from django.apps import AppConfig

from allocation.features import FEATURES


class AllocationConfig(AppConfig):
    """Loads the features with the app: their models, and what they add to the core."""

    name = "allocation"

    def import_models(self) -> None:
        """Imports the models of the core, and then those of features."""
        super().import_models()
        FEATURES.imported("models")

    def ready(self) -> None:
        """Lets features add themselves to the points of the core."""
        FEATURES.imported("points")
