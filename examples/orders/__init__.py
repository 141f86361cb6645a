"""A day of orders, from a topic to a picture: `make demo`."""
