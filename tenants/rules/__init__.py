"""Pure rules: no database, no clock."""
