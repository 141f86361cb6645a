"""Pure rules: no I/O, no clock and no chance of their own."""
