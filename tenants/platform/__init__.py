"""The base of every app: errors, tenant isolation, forms, and strict REST fields."""
