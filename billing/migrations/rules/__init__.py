"""What the tables of money hold to, as SQL: one module for each noun."""
