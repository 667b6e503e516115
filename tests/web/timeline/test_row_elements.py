"""Rows of a timeline as HTML: what people have typed is text, and attributes are those of scripts."""

from allocation.web.timeline.elements import Bar, Cell, Row, rows_element

NAME = '<img src=x onerror="alert(1)">'
SHOWN = "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;"


def test_names_in_rows_and_bars_are_text() -> None:
    bar = Bar("bar", "1", "2", 0, 28, "k", NAME, NAME, NAME, "spot", "/t/a?b=1&c=2", move="all", ends=9.5)
    row = Row("node", NAME, 2, NAME, end=NAME, node=NAME, is_open=True, toggle='/x?"', bars=[bar])
    found = str(rows_element([row]))
    assert NAME not in found
    assert found.count(SHOWN) == 9
    assert '<a href="/t/a?b=1&amp;c=2" tabindex="-1" class="bar"' in found
    assert 'data-move="all 0 9"' in found
    assert 'href="/x?&quot;"' in found


def test_a_row_says_what_scripts_and_readers_need() -> None:
    cells = [Cell("past", ""), Cell("f", "8")]
    row = Row("gpu", "n1/0", 3, "GPU 0", gpu=0, gpu_class="h100", model="m", hidden=True, cells=cells)
    found = str(rows_element([row, Row("slot", "n1/0/1", 4, "slot 1", slot=1, dim=True)]))
    assert (
        '<div class="tl-row gpu" role="row" aria-level="3" data-node="" data-gpu="0" data-class="h100"'
        ' data-model="m" hidden>' in found
    )
    assert 'style="--n:2"><span class="past"></span><span class="f">8</span></div>' in found
    assert '<div class="tl-row slot dim" role="row" aria-level="4" data-node="" data-slot="1"' in found
