"""Messages of groups, read and written by hand: what members of groups, and those who commit offsets, send and get."""
