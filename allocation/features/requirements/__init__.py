"""Requirements: texts to accept and training to have before a class or tier is used."""
