"""What stock clients do under fault rules."""
