"""Who somebody is, and what they may do: rules without I/O."""
