"""ShareFetch and ShareAcknowledge, read and written by hand: the requests of workers of a queue."""
