"""The way from browsers to notebooks on nodes: a proxy of its own, at hosts of its own.

A notebook runs what its owner, or code that they fetched, wants. So its pages have another origin than
the portal, no request to it has a cookie of the portal, and each request is checked anew.
"""
