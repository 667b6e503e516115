"""An authenticator in software: creates passkeys and signs challenges as a device does."""

import hashlib
import json
import secrets
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url, encode_cbor

USER_PRESENT, USER_VERIFIED, HAS_KEY = 0x01, 0x04, 0x40


class Device:
    """One passkey of one site."""

    def __init__(self, origin: str, rp_id: str) -> None:
        self.origin, self.rp_id = origin, rp_id
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = secrets.token_bytes(16)
        self.count = 0
        self.handle = ""

    def create(self, options: dict[str, Any]) -> str:
        """The answer to options of a creation."""
        self.handle = options["user"]["id"]
        number = self.key.public_key().public_numbers()
        public = {
            1: 2,
            3: -7,
            -1: 1,
            -2: number.x.to_bytes(32, "big"),
            -3: number.y.to_bytes(32, "big"),
        }
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + encode_cbor(public)
        data = self._data(USER_PRESENT | USER_VERIFIED | HAS_KEY) + attested
        statement = {"fmt": "none", "attStmt": {}, "authData": data}
        return self._answer(
            "webauthn.create",
            options["challenge"],
            lambda _: {
                "attestationObject": bytes_to_base64url(encode_cbor(statement)),
                "transports": ["internal"],
            },
        )

    def sign(self, options: dict[str, Any], *, is_verified: bool = True, is_framed: bool = False) -> str:
        """The answer to options of a request; counts the signature."""
        self.count += 1
        data = self._data(USER_PRESENT | (USER_VERIFIED if is_verified else 0))

        def response(client: bytes) -> dict[str, Any]:
            signed = data + hashlib.sha256(client).digest()
            return {
                "authenticatorData": bytes_to_base64url(data),
                "signature": bytes_to_base64url(self.key.sign(signed, ec.ECDSA(hashes.SHA256()))),
                "userHandle": self.handle,
            }

        return self._answer("webauthn.get", options["challenge"], response, is_framed=is_framed)

    def _data(self, flags: int) -> bytes:
        site = hashlib.sha256(self.rp_id.encode()).digest()
        return site + bytes([flags]) + self.count.to_bytes(4, "big")

    def _answer(
        self,
        kind: str,
        challenge: str,
        response: Any,  # noqa: ANN401
        *,
        is_framed: bool = False,
    ) -> str:
        assert base64url_to_bytes(challenge)
        said: dict[str, object] = {"type": kind, "challenge": challenge, "origin": self.origin}
        said["crossOrigin"] = is_framed
        client = json.dumps(said).encode()
        own = bytes_to_base64url(self.id)
        return json.dumps(
            {
                "id": own,
                "rawId": own,
                "type": "public-key",
                "response": {"clientDataJSON": bytes_to_base64url(client), **response(client)},
                "clientExtensionResults": {},
            }
        )
