"""The rules of the console, without a browser or a broker."""
