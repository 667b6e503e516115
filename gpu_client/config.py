"""Where the portal is and who you are: a file that only you can read, or two variables."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpu_client.problems import Problem


class NotSignedIn(Exception):
    """There is no address or no token."""


@dataclass(frozen=True)
class Config:
    """The portal's address and an API token."""

    url: str
    token: str = field(repr=False)


def config_of(url: str, token: str) -> Config:
    """Returns a configuration that can be sent. Raises Problem, NotSignedIn.

    Neither may have what a header or an address can't have: errors would show the token.
    """
    if not url.startswith(("http://", "https://")):
        detail = f"Write the address of the portal as https://gpu.example.org, not {url!r}."
        raise Problem({"status": 422, "detail": detail})
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise NotSignedIn("The token has characters that no token has. Run: gpu login")
    return Config(url, token)


def config_path(environment: Mapping[str, str]) -> Path:
    """Returns the file: `GPU_CONFIG`, or `gpu/config.json` in the user's configuration folder."""
    if environment.get("GPU_CONFIG"):
        return Path(environment["GPU_CONFIG"])
    home = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "gpu" / "config.json"


def config_load(environment: Mapping[str, str]) -> Config:
    """Returns `GPU_URL` and `GPU_TOKEN`, or else what the file has. Raises NotSignedIn, Problem."""
    stored: dict[str, str] = {}
    try:
        stored = json.loads(config_path(environment).read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise NotSignedIn(f"{config_path(environment)} can't be read: {error}") from None
    url = environment.get("GPU_URL") or stored.get("url", "")
    token = environment.get("GPU_TOKEN") or stored.get("token", "")
    if not url or not token:
        raise NotSignedIn("You are not signed in. Run: gpu login")
    return config_of(url.strip(), token.strip())


def config_save(config: Config, environment: Mapping[str, str]) -> Path:
    """Writes the file with mode 0600, so that nobody else can ever open it. Raises OSError."""
    path = config_path(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(config), file, indent=1)
    new.replace(path)
    return path
