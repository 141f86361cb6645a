"""The controller's rules: topics, placement, leaders, configuration. Pure: what it decides comes out as changes."""
