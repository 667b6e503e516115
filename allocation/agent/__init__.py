"""The node agent: makes a GPU node be what the portal desires and reports what is true."""

VERSION = "0.6.0"
