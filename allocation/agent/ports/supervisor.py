"""What the node's supervisor is told, in systemd's way: that the agent serves and that it lives."""

import logging
import socket
from collections.abc import Mapping

log = logging.getLogger(__name__)


class Supervisor:
    """Of nobody, where none has started us (`NOTIFY_SOCKET` is not set)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # An at sign stands for the null byte of an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(0)

    def ready(self) -> None:
        """The agent serves."""
        self._notify("READY=1")

    def alive(self) -> None:
        """The loop has come round: with `WatchdogSec=` it is killed when this is not said."""
        self._notify("WATCHDOG=1")

    def stopping(self) -> None:
        """The agent was asked to end."""
        self._notify("STOPPING=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("the supervisor does not hear: %s", error)
