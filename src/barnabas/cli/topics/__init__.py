"""`barnabas topics`: kafka-topics with its flags, its rules about which flags go together, and its output."""
