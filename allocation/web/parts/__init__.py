"""Template parts that several pages share."""
