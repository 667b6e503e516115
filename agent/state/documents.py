"""The documents that the agent follows, and the keys that verify them."""

import dataclasses
import logging
from pathlib import Path

import wire
from agent.state.enrol import Identity, identity_save
from agent.state.store import Store

log = logging.getLogger(__name__)


class Keys:
    """The node's signing keys: one, or two while the portal hands over a new one."""

    def __init__(self, identity: Identity, path: Path) -> None:
        """`path` is the identity's file."""
        self.identity = identity
        self._path = path

    def seal(self, message: wire.FromAgent) -> wire.Envelope:
        """Signs with the newest key."""
        version = self.identity.signing_version
        return wire.seal(message, key=self.identity.keys[version], key_version=version)

    def rotate(self, rotation: wire.Rotation, signed_by: int) -> None:
        """Takes the key that a document carries, hidden under the one that signed it. It is on
        disk before it is used: the portal forgets the old one once it sees the new one.

        Raises wire.WireError, OSError.
        """
        if rotation.version in self.identity.keys or rotation.version <= signed_by:
            return
        old = self.identity.keys[signed_by]
        new = wire.key_unwrap(
            old=old, hidden=rotation.hidden, node=self.identity.node, version=rotation.version
        )
        self._keep({signed_by: old, rotation.version: new})
        log.info("signing with key %d from now on", rotation.version)

    def settle(self, version: int | None) -> None:
        """Drops the keys before `version`, which signed the document on disk.

        Raises OSError.
        """
        if version == self.identity.signing_version and len(self.identity.keys) > 1:
            self._keep({version: self.identity.keys[version]})

    def _keep(self, keys: dict[int, bytes]) -> None:
        identity = dataclasses.replace(self.identity, keys=keys)
        identity_save(self._path, identity)
        self.identity = identity


class DocumentFollower:
    """Follows the portal's documents. `problem` is why the last document was refused, else None."""

    def __init__(self, keys: Keys, store: Store) -> None:
        self._keys = keys
        self._store = store
        self._refused: bytes | None = None
        self.problem: str | None = None

    def read(self, raw: bytes) -> bool:
        """Returns whether the followed document or the problem changed."""
        if raw == self._refused:
            return False
        before = (self._store.epoch, self._store.generation, self.problem)
        try:
            envelope = wire.Envelope.from_json(raw)
            desired = wire.open_desired(envelope, self._keys.identity.keys)
            why = self._judge(envelope, desired)
        except wire.WireError as error:
            why = f"the desired state was refused: {error}"
        self._refused = None if why is None else raw
        if why is None and desired.rotation is not None:
            # Tried at each reading of the document: the disk may have room again.
            why = self._rotate(desired.rotation, envelope.key_version)
        self.problem = why
        if why is not None:
            log.error("%s", why)
        return before != (self._store.epoch, self._store.generation, self.problem)

    def _judge(self, envelope: wire.Envelope, desired: wire.Desired) -> str | None:
        """Follows a verified document, or returns why not."""
        if desired.node != self._keys.identity.node:
            return f"the desired state is for {desired.node}"
        verdict = self._store.judge(envelope, desired)
        if verdict == "new":
            self._store.accept(envelope, desired)
        elif verdict != "same":
            ours = f"({self._store.epoch}, {self._store.generation})"
            return f"({desired.epoch}, {desired.generation}) is {verdict}, we follow {ours}"
        return None

    def _rotate(self, rotation: wire.Rotation, signed_by: int) -> str | None:
        try:
            self._keys.rotate(rotation, signed_by)
        except (wire.WireError, OSError) as error:
            return f"the new key was not taken: {error}"
        return None

    def settle(self) -> None:
        """Drops older keys; call it when the followed document is on disk."""
        try:
            self._keys.settle(self._store.key_version)
        except OSError as error:
            log.warning("an old key could not be forgotten: %s", error)
