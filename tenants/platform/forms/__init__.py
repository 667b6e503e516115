"""What every form is made of."""
