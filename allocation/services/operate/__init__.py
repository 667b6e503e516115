"""Acts of operators: maintenance, drains, planned outages, site set-up."""
