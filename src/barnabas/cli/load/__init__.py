"""`barnabas load`: a topic into a table, once or for ever, exactly once either way."""
