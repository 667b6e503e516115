"""What the tables of people and tenants hold to, as SQL: one module for each noun."""
