"""What is known of sites: zones, storage, and energy by hour."""
