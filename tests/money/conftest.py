"""The plant of the services' tests."""

from tests.services.conftest import plant

__all__ = ["plant"]
