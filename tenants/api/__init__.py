"""REST resources of people and rules, and the base of every REST view of the portal."""
