"""REST keeps what each release had: its paths, parameters and fields, with their types and values."""

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.servers import ROOT

RELEASES = Path(__file__).parent
METHODS = ("get", "post", "put", "patch", "delete")
Schema = dict[str, Any]


class Comparison:
    """What a client of the old description would miss in the new one."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old, self.new = old, new
        self.compared: set[tuple[str, str, bool]] = set()

    def missing(self) -> Iterator[str]:
        """Each difference as a sentence's subject, with its route."""
        for path, methods in self.old["paths"].items():
            for method in METHODS:
                if method not in methods:
                    continue
                route = f"{method.upper()} {path}"
                now = self.new["paths"].get(path, {}).get(method)
                if now is None:
                    yield route
                    continue
                yield from self._parameters(route, methods[method], now)
                for code, answer in methods[method]["responses"].items():
                    if code.startswith("2"):
                        yield from self._contents(
                            f"{route} {code}", answer, now["responses"].get(code, {}), is_sent=False
                        )
                sent = methods[method].get("requestBody")
                if sent:
                    yield from self._contents(f"{route} body", sent, now.get("requestBody", {}), is_sent=True)

    def _parameters(self, route: str, old: Schema, new: Schema) -> Iterator[str]:
        before = {each["name"] for each in old.get("parameters", ())}
        after = {each["name"]: each.get("required", False) for each in new.get("parameters", ())}
        yield from (f"{route} ?{name}" for name in sorted(before - after.keys()))
        yield from (f"{route} needs ?{name}" for name in sorted(after) if after[name] and name not in before)

    def _contents(self, where: str, old: Schema, new: Schema, *, is_sent: bool) -> Iterator[str]:
        for kind, content in old.get("content", {}).items():
            now = new.get("content", {}).get(kind)
            if now is None:
                yield f"{where} {kind}"
            else:
                yield from self._schemas(
                    where, content.get("schema", {}), now.get("schema", {}), is_sent=is_sent
                )

    def _schemas(self, where: str, old: Schema, new: Schema, *, is_sent: bool) -> Iterator[str]:
        names = (str(old.get("$ref", "")), str(new.get("$ref", "")), is_sent)
        if names[0] and names in self.compared:
            return
        self.compared.add(names)
        old, new = _found(self.old, old), _found(self.new, new)
        if old.get("type") != new.get("type"):
            yield f"{where} as {old.get('type')}"
        if is_sent:
            yield from _refused(where, old, new)
        after = new.get("properties", {})
        for name, field in old.get("properties", {}).items():
            if name in after:
                yield from self._schemas(f"{where} {name}", field, after[name], is_sent=is_sent)
            elif not new.get("additionalProperties"):
                yield f"{where} {name}"
        if "items" in old:
            yield from self._schemas(f"{where}[]", old["items"], new.get("items", {}), is_sent=is_sent)


def _refused(where: str, old: Schema, new: Schema) -> Iterator[str]:
    """What an old client sends and the new portal would refuse."""
    if "enum" in new:
        yield from (f"{where} = {each}" for each in old.get("enum", ()) if each not in new["enum"])
    more = set(new.get("required", ())) - set(old.get("required", ()))
    yield from (f"{where} needs {name}" for name in sorted(more))


def _found(described: Schema, schema: Schema) -> Schema:
    """The schema behind a reference, also behind the only one of `allOf`."""
    if len(schema.get("allOf", ())) == 1:
        return _found(described, schema["allOf"][0])
    if "$ref" not in schema:
        return schema
    found: Schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def read(text: bytes) -> Schema:
    found: Schema = yaml.load(text, Loader=yaml.CSafeLoader)
    return found


def described_now() -> Schema:
    return read((ROOT / "docs/openapi.yaml").read_bytes())


@pytest.mark.parametrize("release", sorted(RELEASES.glob("*.openapi.yaml.xz")), ids=lambda path: path.name)
def test_clients_of_a_release_find_what_they_use(release: Path) -> None:
    old = read(lzma.decompress(release.read_bytes()))
    assert list(Comparison(old, described_now()).missing()) == []


def test_what_is_taken_from_clients_is_found() -> None:
    old, new = described_now(), described_now()
    quotes = new["paths"]["/api/v1/quotes"]["post"]
    del new["paths"]["/api/v1/me"]
    quotes["parameters"] = [{"name": "mood", "required": True}]
    body = quotes["requestBody"]["content"]["application/json"]["schema"]
    asked = _found(new, body)
    asked["required"] = [*asked.get("required", ()), "mood"]
    gone = next(iter(asked["properties"]))
    del asked["properties"][gone]
    found = set(Comparison(old, new).missing())
    assert {"GET /api/v1/me", "POST /api/v1/quotes needs ?mood"} <= found
    assert {"POST /api/v1/quotes body needs mood", f"POST /api/v1/quotes body {gone}"} <= found
