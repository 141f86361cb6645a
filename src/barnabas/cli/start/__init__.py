"""`barnabas start`: one broker or several, in the terminal or as a service."""
