"""A client of the portal's REST API (`gpu_client.api.Client`), and the command `gpu`.

It needs neither Django nor a GPU. This module imports nothing: `gpu` can then say what is missing.
"""
