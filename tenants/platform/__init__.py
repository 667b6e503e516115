"""What every app of the portal stands on: errors, the wall, and the frame of REST answers."""
