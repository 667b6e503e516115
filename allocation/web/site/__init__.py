"""Pages on which operators set up and steer the site."""
