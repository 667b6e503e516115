"""What a directory sends by SCIM, read by scim2-models: resources, PATCH operations and filters.

Names of attributes are read in any case and with the URN of their schema, as RFC 7644 allows. The
models have what the portal keeps. The library takes half a second to load, so only the process that
serves directories loads this module, at the first call.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ValidationError
from scim2_models import (
    URN,
    CaseExact,
    ComplexAttribute,
    Context,
    EnterpriseUser,
    Group,
    Name,
    PatchOp,
    Required,
    Resource,
    SCIMException,
    ScimFilter,
    ScimPolicy,
    User,
)
from scim2_models.path import AttrPath, CompareOperator, Comparison

from portal.words import refusal_text
from tenants.platform.errors import Refused, invalid

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
MOST_OPERATIONS = 100
# Microsoft's directory removes members by the value of the operation.
AS_SENT = ScimPolicy(remove_value_as_filter=ScimPolicy.RemoveValue.apply)
# Read-only, and sent along by Okta.
_IDENTITY = ("id", "schemas", "meta")


class PersonName(ComplexAttribute):
    """The name of a person."""

    formatted: str | None = None
    given_name: str | None = None
    family_name: str | None = None


class Person(Resource[Any]):
    """A person: what the portal keeps of the core schema. Others of its attributes are ignored in a
    whole resource, and refused in a PATCH."""

    __schema__ = URN(USER)

    user_name: Annotated[str | None, Required.true, CaseExact.false] = None
    name: PersonName | None = None
    display_name: str | None = None
    active: bool | None = None


R = TypeVar("R", Person, Group)
_PATCHES: dict[type[Resource[Any]], "type[PatchOp[Any]]"] = {
    Person: PatchOp[Person],
    Group: PatchOp[Group],
}
_FILTERS: dict[type[Resource[Any]], "type[ScimFilter[Any]]"] = {
    Person: ScimFilter[Person],
    Group: ScimFilter[Group],
}


def _names_of(model: type[BaseModel]) -> set[str]:
    return {(field.serialization_alias or name).lower() for name, field in model.model_fields.items()}


# What may be sent and is not kept. Names are in small letters.
_IGNORED: dict[type[BaseModel], set[str]] = {
    Person: {*_names_of(User), ENTERPRISE.lower()},
    PersonName: _names_of(Name),
}
_EXTENSION = _names_of(EnterpriseUser)


def resource_read(model: type[R], body: Mapping[str, Any]) -> R:
    """Reads a whole resource, of POST or PUT.

    Raises:
        Refused: `invalidSyntax` or `invalidValue`, also for a name that SCIM does not know.
    """
    urn = str(model.__schema__)
    flat = _without_urn(body, urn)
    lenient = ScimPolicy(unknown=ScimPolicy.Unknown.ignore)
    with _faults():
        found = model.model_validate(
            {**flat, "schemas": [urn]},
            scim_ctx=Context.RESOURCE_CREATION_REQUEST,
            scim_policy=lenient,
        )
    for name in _unknown(found):
        raise invalid("invalidValue", refusal_text("scim_unknown", name=name[:80]), name[:80])
    if "active" in found.model_fields_set and getattr(found, "active", None) is None:
        # Null is as good as left out (RFC 7643, 2.5). Whoever states it means that it changes something.
        raise invalid("invalidValue", refusal_text("scim_active"), "active")
    return found


def _unknown(found: Person | Group) -> Iterator[str]:
    """Names of a resource, and inside of its attributes, that SCIM does not know."""
    parts = (found.members or []) if isinstance(found, Group) else [found.name]
    for part in (found, *parts):
        if part is not None:
            ignored = _IGNORED.get(type(part), set())
            yield from (name for name in part.unknown_attributes if name.lower() not in ignored)
    for name, value in found.unknown_attributes.items():
        if name.lower() == ENTERPRISE.lower() and isinstance(value, dict):
            yield from (each for each in value if each.lower() not in _EXTENSION)


def resource_patched(model: type[R], stated: Mapping[str, Any], body: Mapping[str, Any]) -> R:
    """Applies the operations of a PATCH to the resource as it is stated.

    Raises:
        Refused: with the `scimType` of the first operation that can't be applied.
    """
    lower = {name.lower(): value for name, value in body.items()}
    left = sorted(lower.keys() - {"operations", "schemas"})
    if left:
        raise invalid("invalidSyntax", refusal_text("scim_patch_only", name=left[0][:80]), left[0])
    operations = lower.get("operations")
    if not isinstance(operations, list) or not operations:
        raise invalid("invalidSyntax", refusal_text("scim_operations"), "Operations")
    if len(operations) > MOST_OPERATIONS:
        sentence = refusal_text("scim_operations_many", most=MOST_OPERATIONS)
        raise invalid("invalidValue", sentence, "Operations")
    with _faults(), AS_SENT:
        found = model.model_validate(dict(stated))
    for each in operations:
        with _faults(_path_of(each)), AS_SENT:
            _operate(model, found, each)
    return found


def _path_of(operation: object) -> str:
    """The path of an operation as it was sent, or the name of what has its value."""
    if not isinstance(operation, dict):
        return "Operations"
    lower = {name.lower(): value for name, value in operation.items()}
    return str(lower.get("path") or "value")


# What a member is called and where it is follow from its account.
_DERIVED = re.compile(r"members(\[.*\])?\.(display|type|\$ref)$", re.IGNORECASE)
_ONE_MEMBER = re.compile(r"members\[.*\]$", re.IGNORECASE)


def _operate(model: type[R], found: R, sent: object) -> None:
    if not isinstance(sent, dict):
        raise invalid("invalidSyntax", refusal_text("scim_operation"), "Operations")
    operation = {name.lower(): value for name, value in sent.items()}
    value = operation.get("value")
    if value == {}:
        raise invalid("invalidValue", refusal_text("scim_empty"), "value")
    if operation.get("path") in (None, ""):
        operation.pop("path", None)
        if isinstance(value, dict):
            plain = _without_urn(value, str(model.__schema__))
            operation["value"] = _without_identity(plain, found.id)
    message = {"schemas": [PATCH], "Operations": [operation]}
    patch = _PATCHES[model].model_validate(message, scim_ctx=Context.RESOURCE_PATCH_REQUEST)
    is_changed = patch.patch(found)
    path = str(operation.get("path", ""))
    names_nobody = isinstance(value, dict) and "value" not in map(str.lower, value)
    if _DERIVED.search(path) or (_ONE_MEMBER.search(path) and names_nobody):
        raise invalid("mutability", refusal_text("scim_kept", name=path[:200]), "path")
    is_selected = value is not None or "[" in path
    is_removal = str(operation.get("op", "")).lower() == "remove"
    if is_removal and is_selected and not is_changed:
        raise invalid("noTarget", refusal_text("scim_no_target", path=path[:200]), "path")


def filter_read(model: type[R], text: str, names: Collection[str]) -> tuple[str, str]:
    """The attribute and the value of a filter such as `userName eq "ada"`.

    Raises:
        Refused: `invalidFilter`, for any other form.
    """
    try:
        node = _FILTERS[model](text).ast
    except (SCIMException, ValueError):
        node = None
    if isinstance(node, Comparison) and node.op == CompareOperator.eq:
        name = next((each for each in names if _is_named(node.attr_path, model, each)), None)
        if name is not None and isinstance(node.value, str):
            return name, node.value
    raise invalid("invalidFilter", refusal_text("scim_filter", names=", ".join(names)), "filter")


def _is_named(path: AttrPath, model: type[R], name: str) -> bool:
    uri = (path.uri or model.__schema__ or "").lower()
    is_ours = uri == str(model.__schema__).lower() and path.sub_attr is None
    return is_ours and path.attr.lower() == name.lower()


def _without_urn(body: Mapping[str, Any], urn: str) -> dict[str, Any]:
    """The attributes by their plain names, where they have the URN of the schema before them."""
    flat: dict[str, Any] = {}
    for name, value in body.items():
        is_ours = name.lower() == urn.lower()
        inner = value if is_ours and isinstance(value, dict) else {name: value}
        for each, held in inner.items():
            plain = each[len(urn) + 1 :] if each.lower().startswith(f"{urn.lower()}:") else each
            if plain.strip().lower() in map(str.lower, flat):
                raise invalid("invalidSyntax", refusal_text("scim_twice", name=plain[:80]), plain)
            flat[plain] = held
    return {name: value for name, value in flat.items() if name.lower() != "schemas"}


def _without_identity(value: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    ours = {"id": key}
    return {
        name: held
        for name, held in value.items()
        if name.lower() not in _IDENTITY or ours.get(name.lower(), held) != held
    }


# The sentence of a fault by the type that pydantic gives it, and by SCIM's own kind.
_BY_TYPE = {
    "missing": "scim_missing",
    "required_error": "scim_missing",
    "string_type": "scim_text",
    "string_sub_type": "scim_text",
    "bool_type": "scim_true",
    "bool_parsing": "scim_true",
    "list_type": "scim_list",
    "dict_type": "scim_object",
    "model_type": "scim_object",
    "model_attributes_type": "scim_object",
}
_BY_KIND = {
    "invalidSyntax": "scim_syntax",
    "invalidValue": "scim_value",
    "invalidPath": "scim_path",
    "mutability": "scim_fixed",
    "noTarget": "scim_no_target",
}
_OPERATION = re.compile(r"operations\.\d+\.?", re.IGNORECASE)
_LONGEST_NAME = 200


@contextmanager
def _faults(path: str = "body") -> Iterator[None]:
    """Raises what the library finds wrong at the path as Refused, in sentences of ours."""
    try:
        yield
    except SCIMException as fault:
        raise _refused(fault.scim_type, "", path) from None
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        inside = _OPERATION.sub("", where)
        if first["type"] == "required_error":
            inside = str(first.get("ctx", {}).get("field_name", inside))
        name = path if inside.lower() in ("", "path", "value") else inside
        kind = str(first["type"])
        raise _refused(kind.removeprefix("scim_"), kind, name) from None


def _refused(kind: str, fault: str, name: str) -> Refused:
    code = kind if kind in _BY_KIND else "invalidValue"
    sentence = "scim_op" if name.lower() == "op" else _BY_TYPE.get(fault, _BY_KIND[code])
    shown = name[:_LONGEST_NAME]
    facts = {"path": shown} if sentence == "scim_no_target" else {"name": shown}
    return invalid(code, refusal_text(sentence, **facts), "body")
