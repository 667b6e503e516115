"""Where committed messages leave the portal: one folder per kind, with everything inside."""
