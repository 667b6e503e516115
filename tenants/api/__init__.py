"""REST resources of people and rules, and the frame every REST view of the portal stands on."""
