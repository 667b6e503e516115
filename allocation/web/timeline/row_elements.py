"""The rows of a timeline as HTML.

A page has thousands of bars, cells and rows; a template takes ten times as long for them.
"""

from collections.abc import Iterable, Iterator
from html import escape

from django.templatetags.static import static
from django.utils.safestring import SafeString

from allocation.web.timeline.elements import Bar, Row
from tenants.web.parts import icon


def rows_element(rows: Iterable[Row]) -> SafeString:
    """Returns the rows, one element a line."""
    sprite = escape(static("img/icons.svg"))
    return SafeString("\n".join(line for row in rows for line in _row(row, sprite)))


def _row(row: Row, sprite: str) -> Iterator[str]:
    yield f"<div {' '.join(_attributes(row))}>"
    kind, key = row.kind, escape(row.key)
    yield f'<div class="tl-lab {kind}" role="rowheader" tabindex="-1" data-key="{key}#">'
    yield f"{_label(row)}</div>"
    yield f'<div class="lane" role="gridcell" tabindex="-1" data-key="{key}">'
    if row.cells:
        cells = "".join(f'<span class="{each.css}">{escape(each.text)}</span>' for each in row.cells)
        yield f'<div class="dens" aria-hidden="true" style="--n:{len(row.cells)}">{cells}</div>'
    for bar in row.bars:
        yield _bar(bar, sprite)
    yield "</div></div>"


def _attributes(row: Row) -> Iterator[str]:
    yield f'class="tl-row {row.kind}{" dim" if row.dim else ""}" role="row" aria-level="{row.level}"'
    if row.is_open is not None:
        yield f'aria-expanded="{"true" if row.is_open else "false"}"'
    yield f'data-node="{escape(row.node)}"'
    if row.gpu is not None:
        yield f'data-gpu="{row.gpu}"'
    if row.slot is not None:
        yield f'data-slot="{row.slot}"'
    if row.is_chosen:
        yield "data-chosen"
    yield f'data-class="{escape(row.gpu_class)}"'
    if row.model:
        yield f'data-model="{escape(row.model)}"'
    if row.hidden:
        yield "hidden"


def _label(row: Row) -> str:
    name = escape(row.name)
    first = ""
    if row.kind == "node":
        act = "Collapse" if row.is_open else "Expand"
        first = (
            f'<a class="tog" href="{escape(row.toggle)}" tabindex="-1" aria-label="{act} {name}" data-toggle>'
            f"{icon('down', 'ic-s')}</a>"
        )
    elif row.kind == "slot":
        first = '<i class="mem"></i>'
    if row.kind == "wait":
        name = f'<span class="nm">{name}</span>'
    elif row.calendar:
        name = f'<a href="{escape(row.calendar)}" tabindex="-1">{name}</a>'
    end = f' <span class="end">{escape(row.end)}</span>' if row.end else ""
    return f"{first} {name}{end}"


def _bar(bar: Bar, sprite: str) -> str:
    """A bar. Its name is also what a pointer reads on it, which `timeline.js` sets: twice in the page it
    would be a tenth of its size."""
    tag = "a" if bar.href else "span"
    opens = f'href="{escape(bar.href)}" tabindex="-1"' if bar.href else 'role="img"'
    gpus = f' data-gpus="{bar.gpus}"' if bar.gpus > 1 else ""
    drag = f' data-move="{bar.move} {int(bar.starts)} {int(bar.ends)}"' if bar.move else ""
    svg = f'<svg class="ic" aria-hidden="true"><use href="{sprite}#i-{bar.icon}"/></svg>' if bar.icon else ""
    sub = f' <span class="by">{escape(bar.sub)}</span>' if bar.sub else ""
    return (
        f'<{tag} {opens} class="{escape(bar.css)}"'
        f' style="left:calc({bar.left}% + 1px);width:calc({bar.width}% - 2px);'
        f'top:{bar.top}px;height:{bar.height}px"'
        f' data-key="{escape(bar.key)}"{gpus}{drag} aria-label="{escape(bar.name)}">'
        f"{svg}<span>{escape(bar.title)}{sub}</span></{tag}>"
    )
