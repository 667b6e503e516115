"""The REST API as a whole: its addresses, its problems, its document, and the probes."""
