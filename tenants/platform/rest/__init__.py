"""What every REST view is made of."""
