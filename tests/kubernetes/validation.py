"""Objects against the published schemas: those of Kubernetes's API, and of the CRDs of Kueue and Volcano."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parent / "schemas"
_CORE = json.loads((SCHEMAS / "kubernetes.json").read_text())
_CRDS = {
    kind: schema
    for name in ("kueue.json", "volcano.json")
    for kind, schema in json.loads((SCHEMAS / name).read_text()).items()
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def problem_of(kind: str, data: dict[str, Any]) -> str | None:
    """Returns what an API server would refuse in an object, None if nothing."""
    for error in _validator(kind).iter_errors(data):
        return f"{kind}: {'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
    meta = data.get("metadata", {})
    if kind != "SelfSubjectAccessReview" and not _named(meta.get("name", meta.get("generateName", "") + "x")):
        return f"{kind}: {meta.get('name')!r} is no name"
    for key, value in meta.get("labels", {}).items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            return f"{kind}: {key}={value} is no label"
    for key in meta.get("annotations", {}):
        if not _LABEL_KEY.fullmatch(key):
            return f"{kind}: {key} is no annotation"
    return None


def _named(name: str) -> bool:
    return len(name) <= 253 and _NAME.fullmatch(name) is not None


@cache
def _validator(kind: str) -> Draft202012Validator:
    if kind in _CRDS:
        schema = _closed(_CRDS[kind])
        schema["properties"]["metadata"] = {"$ref": f"#/$defs/{_META}"}
    else:
        schema = {"$ref": f"#/$defs/{_CORE['kinds'][kind]}"}
    return Draft202012Validator({**schema, "$defs": _CORE["$defs"]})


def _closed(schema: Any) -> Any:  # noqa: ANN401 (a part of a JSON schema)
    """Returns the schema of a CRD without room for unknown fields, as `fieldValidation=Strict` asks."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found
