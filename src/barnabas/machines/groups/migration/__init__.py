"""A group changes from the classic to the consumer protocol and back while it works."""
