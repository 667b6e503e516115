"""The Django application of the portal."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Registers the checks of `manage.py check --deploy`."""

    name = "portal"

    def ready(self) -> None:
        """Called by Django after all models are loaded; the checks use them."""
        from portal.checks import checks_register  # noqa: PLC0415 (models load after this module)

        checks_register()
