"""What a message of the broker must have so that a worker of Celery can read it.

Celery ends its process at a message whose parts it can't read, and gets the same message again at its
next start. So such a message is found before Celery sees it.
"""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any


def message_fault(message: object) -> str:
    """Returns the name of the part that can't be read; empty: it is as kombu and Celery write it."""
    if not isinstance(message, dict):
        return "message"
    properties = message.get("properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_tag"), str):
        return "properties"
    info = properties.get("delivery_info")
    if not isinstance(info, dict) or not {"exchange", "routing_key"} <= info.keys():
        return "delivery_info"
    headers = message.get("headers") or {}
    if not isinstance(headers, dict):
        return "headers"
    if not isinstance(message.get("body") or "", str):
        return "body"
    return _task_fault(message, headers) if "task" in headers else ""


def _task_fault(message: Mapping[str, Any], headers: Mapping[str, Any]) -> str:
    """The same of a message that runs a task."""
    wrong = (name for name, is_right in _HEADERS.items() if not is_right(headers.get(name)))
    found = next(wrong, "")
    return found or ("" if _has_arguments(message) else "body")


def _has_arguments(message: Mapping[str, Any]) -> bool:
    """Whether the body is JSON: positional and named arguments, and what follows."""
    try:
        args, kwargs, embed = json.loads(base64.b64decode(message.get("body") or ""))
    except (ValueError, TypeError, RecursionError):
        return False
    is_json = message.get("content-type") == "application/json"
    return is_json and isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embed, dict | None)


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return value is None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _are_limits(value: object) -> bool:
    if not isinstance(value, list):
        return value is None
    return len(value) == 2 and all(isinstance(each, int | float | None) for each in value)


_HEADERS: dict[str, Callable[[object], bool]] = {
    "task": lambda value: isinstance(value, str),
    "id": lambda value: isinstance(value, str),
    "eta": _is_time,
    "expires": _is_time,
    "timelimit": _are_limits,
    "retries": lambda value: isinstance(value, int | None),
}
