"""The fixtures of the simulation's tests."""

from tests.services.conftest import plant

__all__ = ["plant"]
