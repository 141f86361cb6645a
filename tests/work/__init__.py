"""What requests cost, counted."""
