"""Parts of a site that do not influence each other, decided apart."""
