"""Real clients × mechanisms × TLS: who comes in, and who is turned away for which reason.

    cells       what is tried: a listener, a login, certificates, and how it must end
    broker      one broker with a listener for each manner of failing
    clients     the clients, each of which tries all of its cells at once
    Matrix.java, go/main.go     the same for Java's client and for franz-go, in one process each
    shares, go/shares           not of the matrix: franz-go's share consumer on a queue

`tests/compat/security/test_matrix` runs the clients that every machine has for which `make test` works. `make matrix`
(`python -m tests.matrix`) runs franz-go as well, which needs Go, and prints a table.
"""
