"""Records on the command line: how they are written and read as text, for `barnabas produce` and `barnabas consume`."""
