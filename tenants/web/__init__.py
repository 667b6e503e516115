"""Pages of people and organisations, sign-in, and the frame of every page."""
