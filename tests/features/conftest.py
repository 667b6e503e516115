"""Fixtures of features' tests."""

from tests.api.conftest import site
from tests.services.conftest import lab, plant

__all__ = ["lab", "plant", "site"]
