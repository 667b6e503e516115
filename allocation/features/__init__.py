"""Features: each is a folder with its models, services, rules, page, REST and words.

The core knows none of them. A feature adds itself to the points of `allocation.points`, and its
routes and models are found here. Features do not import each other.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django.urls import URLPattern

FEATURES = ("approval_rules", "calendars", "insights", "progress", "stand_ins")


def features_import(part: str) -> list[ModuleType]:
    """Imports a module of each feature that has it: `models`, `points`, `page` or `rest`."""
    names = [f"{__name__}.{feature}.{part}" for feature in FEATURES]
    return [import_module(name) for name in names if find_spec(name)]


def feature_urls(part: str) -> list[URLPattern]:
    """The routes of all features: of `page`, or of `rest` under /api/v1."""
    return [route for module in features_import(part) for route in module.urlpatterns]
