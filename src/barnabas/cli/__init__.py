"""The command line: `main`, a module or a folder for each command, and `common` for what they share."""
