"""Amounts of data on pages have one unit that fits their size."""

import pytest

from allocation.web.parts.sizes import data_size


@pytest.mark.parametrize(
    ("mebibytes", "text"),
    [(0, "0 MiB"), (58, "58 MiB"), (999, "999 MiB"), (12_000, "11.7 GiB"), (1_572_864, "1.5 TiB")],
)
def test_an_amount_of_data_has_the_unit_of_its_size(mebibytes: int, text: str) -> None:
    assert data_size(mebibytes) == text
