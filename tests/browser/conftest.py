"""One seeded site for all browser tests of a run: it takes longer to start than they take."""

from collections.abc import Iterator

import pytest

from tests.browser.site import Site, site


@pytest.fixture(scope="package")
def running() -> Iterator[Site]:
    """The site; what a test changes there it leaves, so no test counts on an empty place."""
    with site() as found:
        yield found
