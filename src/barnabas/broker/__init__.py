"""The imperative shell: it joins sockets, storage, metadata and rules into a broker."""
