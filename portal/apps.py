"""The portal as a Django application."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Registers the checks of an installation."""

    name = "portal"

    def ready(self) -> None:
        """Called by Django once all models are there, which the checks ask."""
        from portal.checks import checks_register  # noqa: PLC0415 (models are not there on import)

        checks_register()
