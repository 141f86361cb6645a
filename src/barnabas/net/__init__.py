"""Sockets: accepting, framing, flow control and zero-copy sending."""
