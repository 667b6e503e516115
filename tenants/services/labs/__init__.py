"""Labs: groups of projects, what they may use together, and limits of persons and at some times."""
