"""Tools for development and demos: no wheel and no image of the portal has them."""
