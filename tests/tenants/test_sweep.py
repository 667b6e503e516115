"""The periodic task that removes what has expired, as a worker runs it."""

import pytest

from tenants.tasks import sweep
from tests.roles import as_system


@pytest.mark.usefixtures("real_db")
def test_it_has_no_transaction_around_it() -> None:
    with as_system():
        sweep()
