"""Figures that several pages and REST show: all places of each are compared."""
