"""From a frame to an answer: the registry of APIs, the dispatcher, and what all handlers use."""
