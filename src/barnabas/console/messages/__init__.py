"""Records as people read them: fetched with their batches, decoded, masked, filtered, and cut to a bearable size."""
