"""Features: each is a folder with its services, pages, REST and words. The core knows none of them."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django.urls import URLPattern


class Features:
    """The features of a package, by the names of their folders."""

    def __init__(self, package: str, *names: str) -> None:
        self.folders = [f"{package}.{name}" for name in names]

    def imported(self, part: str) -> list[ModuleType]:
        """Imports a module of each feature that has it: `models`, `points`, `page` or `rest`."""
        names = [f"{folder}.{part}" for folder in self.folders]
        return [import_module(name) for name in names if find_spec(name)]

    def urls(self, part: str) -> list[URLPattern]:
        """The routes of all features: of `page`, or of `rest` under /api/v1."""
        return [route for module in self.imported(part) for route in module.urlpatterns]


FEATURES = Features(__name__, "chat", "policy_hook", "saved_views", "webhooks")
