"""What the agent needs from outside: drivers, programs, the host, the portal."""
