"""Long lists on phones: a tick shows what is behind the first rows."""

import re

from tenants.web.parts import MOST_ON_PHONES, all_rows
from tests.bench.machine import ROOT


def test_only_long_lists_have_the_tick() -> None:
    assert all_rows(MOST_ON_PHONES, "line") == ""
    assert all_rows(25, "free time") == (
        '<label class="all-rows"><input type="checkbox" id="all-free-time"> All 25 free times</label>'
    )
    assert "All 8 GPUs" in all_rows(8, "GPU", 4)


def test_the_style_hides_the_rows_behind_as_many() -> None:
    css = (ROOT / "static/css/parts.css").read_text("utf-8")
    assert re.findall(r"tbody > tr:nth-child\(n\+(\d+)\)", css) == [str(MOST_ON_PHONES + 1)]
