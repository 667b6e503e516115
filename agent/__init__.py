"""The node agent: applies the portal's desired state to a GPU node and reports the actual state."""

VERSION = "0.8.0"
