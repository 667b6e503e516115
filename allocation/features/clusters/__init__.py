"""Work that other systems run outside of the portal: read, counted and compared, never changed."""
