"""`barnabas users`: users that log in by SCRAM."""
