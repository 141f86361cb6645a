"""What the page asks the console: JSON, and server-sent events for records."""
