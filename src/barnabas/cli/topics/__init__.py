"""`barnabas topics`: kafka-topics, with its rules about which flags go together and its output."""
