"""The cluster around a broker: who is the active controller, what it decides, and how brokers learn of it."""
