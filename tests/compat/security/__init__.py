"""Real clients of a broker with TLS."""
