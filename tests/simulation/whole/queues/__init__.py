"""A queue in a world: workers of a share group who work, fail, die and hang, and one who looks at what is stored.

The group reads the topic that producers and transactions write. What its workers saw is held against the rules of
`tests/history/queues` when everything was mended and one last worker has had its time.
"""
