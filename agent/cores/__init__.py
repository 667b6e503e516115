"""Cores of a host for work without a GPU: each is a device, kept apart by cgroups."""
