"""Records to rows: bytes, text, JSON, Avro and Protobuf, each record a row or a dead letter.

`choosing.choose_decoder` gives a decoder by its name; `contract.Decoder` says what all of them do.
"""
