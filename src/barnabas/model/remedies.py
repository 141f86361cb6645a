"""What somebody can do about an error, as data.

An error of the library says what happened. What to do next depends on who reads it: a program, a person at the command
line, an operator with the broker's log. So an error carries its remedy as a value, without flags or commands, and the
command line has the words for each kind (`cli/common/remedies.py`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class RemedyKind(Enum):
    """What can be done; the subject is given in brackets."""

    START_BROKER = auto()
    """Start a broker, or name another address."""
    CHECK_LISTENER = auto()
    """See whether the address is that of a listener of the right kind, and whether the broker is busy."""
    CHECK_SECURITY = auto()
    """Correct the properties about TLS and SASL."""
    ASK_FOR_PERMISSION = auto()
    """Have a rule made that allows it [the operation, the kind of the resource and its name, if these are known]."""
    CORRECT_CONFIG_NAME = auto()
    """Write the name of a topic's config as Kafka does [the name as it was written]."""
    CHOOSE_PORT = auto()
    """Stop the program that uses the port, or choose another port."""
    UNSET_CONFIG = auto()
    """Start the broker without a value for a config [its key]."""
    CHECK_LOG = auto()
    """Stop the broker, and check the files of a log [its directory]."""
    SEQUENCE_OFFSETS = auto()
    """Stop the broker, and give batches of committed offsets their sequence numbers [the data directory]."""
    ACCEPT_LOSS = auto()
    """Stop the broker, and give up records that are missing [the data directory]."""
    IMPORT_METADATA = auto()
    """Stop all brokers, and bring the metadata back from an export."""
    LIST_TOPICS = auto()
    """See which topics there are."""
    USE_PIPELINE_NAME = auto()
    """Go on as the pipeline that owns a table [its name], or choose another table."""
    USE_DECODER = auto()
    """Decode values as the table's first load did [its decoder, if that is known], or choose another table."""
    ALLOW_DATA_LOSS = auto()
    """Go on without records that were removed before they were loaded."""
    DELETE_GROUP = auto()
    """Delete a consumer group [its name]."""
    EXPIRE_VERSIONS = auto()
    """Drop old versions of a table."""
    NAME_CONSOLE = auto()
    """Start the console with a further name that browsers may know it by [the name], if that is right."""
    ALLOW_CHANGES = auto()
    """Start the console so that things can be changed in it."""
    GIVE_CONSOLE_USER = auto()
    """Start the console with properties that name a user for itself."""
    GIVE_REGISTRY = auto()
    """Start the console with the address of a schema registry."""
    GIVE_PUSH_TOKEN = auto()
    """Start the console with a token that brokers send when they push metrics of clients."""
    GIVE_METRICS_TOKEN = auto()
    """Start the console with the token that brokers ask for where they tell metrics."""
    TRUST_METRICS_CERTIFICATE = auto()
    """Start the console with the authority that has signed the certificates of brokers' metrics."""


class Remedy(NamedTuple):
    """What to do, and with what."""

    kind: RemedyKind
    subject: str = ""
