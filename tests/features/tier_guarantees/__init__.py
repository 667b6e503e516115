"""Tests of guarantees by tier."""
