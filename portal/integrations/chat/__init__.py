"""Messages to chat services, sent by a process of their own."""
