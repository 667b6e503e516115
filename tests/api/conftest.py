"""Fixtures of the API's tests."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.builders import Site


@pytest.fixture
def site(db: None) -> "Site":
    """A small site, in the test's own transaction."""
    from tests.api.builders import a_site  # noqa: PLC0415 (settings are not there on import)

    return a_site()
