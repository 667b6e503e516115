"""What a browser is given: nothing inline, nothing from elsewhere, every icon and file there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
STATIC = ROOT / "static"
ICONS = set(re.findall(r'id="i-([a-z]+)"', (STATIC / "img" / "icons.svg").read_text()))
HEX = re.compile(r"#[0-9a-fA-F]{3,8}\b")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_a_template_has_no_inline_script_or_style_and_asks_nobody_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert "<style" not in text
    assert not re.search(r"\son[a-z]+\s*=", text)
    assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", text)


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_icons_and_files_that_a_template_names_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r'\{% (?:icon|nothing|pill "[a-z]+") "([a-z]+)"', text):
        assert name in ICONS
    for file in re.findall(r"\{% static '([^']+)' %\}", text):
        assert (STATIC / file).is_file()


@pytest.mark.parametrize("path", sorted(STATIC.rglob("*.css")), ids=_name)
def test_colours_are_said_once_as_tokens(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "http" not in text
    if path.name != "tokens.css":
        plain = {found for found in HEX.findall(text) if found not in ("#fff", "#ffffff")}
        # Text on the soft accent, the flag of now: each pair stands in light-dark() once.
        assert plain <= {"#2c3a9e", "#c3cbff", "#14181f"}


@pytest.mark.parametrize("path", sorted(STATIC.rglob("*.js")), ids=_name)
def test_scripts_build_no_code_from_text_and_import_only_each_other(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\beval\(|new Function\(|document\.write", text)
    for module in re.findall(r"from '([^']+)'", text):
        assert (path.parent / module).is_file()
