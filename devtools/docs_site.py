"""A hook of MkDocs: the site has no code, so a link out of docs/ becomes the path that it names."""

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((\.\.?/[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 (MkDocs' own types)
    """Returns the page's text with those links replaced."""
    folder = posixpath.dirname(page.file.src_uri)

    def text_of(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if path.startswith("docs/"):
            return link[0]
        text = link[1].strip("`")
        return f"`{path}`" if text in path else f"{link[1]} (`{path}`)"

    return _LINK.sub(text_of, markdown)
