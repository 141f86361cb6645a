"""Which options of `format("barnabas")` the source of a pipeline may have. Pure.

What is read, and from where on, is decided by the pipeline: a table that says how far it was filled would get rows
twice, or miss some, if an option had the last word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.options import PREFIX, SERVERS
from barnabas.pipelines.spark.read.options import ENDING, GROUP, SELECTING, STARTING, STRATEGY, TUNING, stream_options
from barnabas.pipelines.spec.places import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_START: Final = "the sink says where reading goes on, and `start` where it begins"
DECIDED: Final = {
    **dict.fromkeys(SELECTING, "`topic` or `pattern` says what is read"),
    **dict.fromkeys((*STARTING, STRATEGY), _START),
    **dict.fromkeys(ENDING, "a stream has no end; the trigger available-now gives it one"),
    GROUP: "each sink has a group of its own, PIPELINE.SINK",
}
"""What may not be set, and why."""


def option_problems(options: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the options of a source."""
    decided = {name.lower(): name for name in DECIDED}
    known = {name.lower() for name in TUNING}
    wrong = False
    for name in options:
        if name.lower() in known:
            continue
        wrong = True
        if name.lower().startswith(PREFIX):
            yield f'option "{name}" cannot be set here: the properties of Kafka\'s clients are in [kafka]'
        elif name.lower() in decided:
            spelled = decided[name.lower()]
            yield f'option "{spelled}" cannot be set: {DECIDED[spelled]}'
        else:
            yield f'there is no option "{name}".{suggestion(name, TUNING)}'
    if not wrong:
        try:
            stream_options({SERVERS: "any", "subscribe": "any", **options})
        except InvalidOption as error:
            yield str(error)
