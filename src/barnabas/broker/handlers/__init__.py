"""One module per family of APIs; a handler turns a request into a response."""
