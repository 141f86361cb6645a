"""Every call fails once: stories of logs and brokers in which the k-th call to the file system fails.

`files` lets the call fail, `story` says what a story is and runs one, `log_stories` and `broker_stories` tell them,
`bugs` are defects of earlier days that the tool must find. `python -m tests.failing_calls` tries every call.
"""
