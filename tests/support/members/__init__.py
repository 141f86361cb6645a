"""Members of consumer groups, one face (`member`) for three client libraries, each in the module of its name."""
