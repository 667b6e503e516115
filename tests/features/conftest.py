"""Fixtures of features' tests."""

from tests.api.conftest import site
from tests.services.conftest import lab

__all__ = ["lab", "site"]
