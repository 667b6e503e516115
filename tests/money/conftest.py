"""The plants of the services' tests."""

from tests.services.conftest import mixed_plant, plant

__all__ = ["mixed_plant", "plant"]
