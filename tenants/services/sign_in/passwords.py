"""Checks and changes passwords without reading stored hashes.

A web process has no access to `tenants_password`. It asks for an account's salt and computes the
hash, and the database compares.
"""

import secrets

from django.contrib.auth.hashers import identify_hasher, make_password
from django.db import connection

from tenants.models import PasswordProof, User

COST_PARAMETERS = ("time_cost", "memory_cost", "parallelism")


def password_prove(username: str, password: str) -> PasswordProof:
    """The proof that the database compares; takes the same time without an account."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_password_form(%s)", [username])
        form = cursor.fetchone()[0]
    if not form:
        # Without an account, hash with a random salt: it takes the same time.
        return PasswordProof(username, make_password(password, secrets.token_hex(11)))
    hasher = type(identify_hasher(form))()
    known = hasher.decode(form)
    for cost in COST_PARAMETERS:
        if cost in known:
            setattr(hasher, cost, known[cost])
    return PasswordProof(username, hasher.encode(password, known["salt"]))


def password_holder(proof: PasswordProof) -> User | None:
    """The active person with this password, or None."""
    found = User.objects.raw(
        "SELECT * FROM portal_account_by_password(%s, %s)", [proof.username, proof.presented]
    )
    return next(iter(found), None)


def password_replace(current: PasswordProof, chosen: str) -> PasswordProof | None:
    """Changes a password, which ends all sessions of its person; returns the new proof.

    Returns None if `current` is not the present password.
    """
    new = PasswordProof(current.username, make_password(chosen))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT portal_password_change(%s, %s, %s)",
            [current.username, current.presented, new.presented],
        )
        is_changed = cursor.fetchone()[0]
    return new if is_changed else None


def sign_in_failed(username: str) -> None:
    """Writes a failed sign-in to the platform's log, without the name if it is unknown."""
    _note(username, "sign_in.failed")


def sign_in_locked_out(username: str) -> None:
    """Logs an attempt during a lock-out, at most once in five minutes per person."""
    _note(username, "sign_in.locked_out")


def _note(username: str, action: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_sign_in_note(%s, %s)", [username, action])
