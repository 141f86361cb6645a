"""From files to a log in memory: after a clean stop, after a crash, and where files have to be made right."""
