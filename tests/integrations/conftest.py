"""The stub of a portal is a fixture of all tests here."""

from tests.integrations.portal import portal

__all__ = ["portal"]
