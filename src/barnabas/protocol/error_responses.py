"""Any request answered with one error, in the place where its API tells errors.

Most responses have one place for an error, at the top. The others tell it for each thing that the request named: each
partition, topic, group or resource. `PLACES` says for those APIs what is repeated from the request, and where to.

Produce and Fetch are packed by hand (`protocol/produce`, `protocol/fetch`) and not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from kio.index import load_response_schema

from barnabas.model.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IDENTITY: Final = frozenset(
    {
        "group_id",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "transactional_id",
    }
)
"""Fields that say which thing is meant; they are what a response repeats of a request."""


@dataclass(frozen=True, slots=True)
class Each:
    """For each element of the request's field `asked` one of the response's field `told`."""

    asked: str
    told: str
    name: str = ""
    """The field of the response's element that has the request's element, where that is a plain value, or its name."""
    inside: Each | None = None
    """Where elements have elements, and those have the error."""
    within: str = ""
    """The request's field whose elements have `asked`, where the response has one level less."""
    values: Mapping[str, object] = field(default_factory=dict)
    """What Kafka says beside an error, where that is not the field's default."""


_PARTITIONS: Final = Each("partitions", "partitions")

PLACES: Final[dict[ApiKey, Each]] = {
    ApiKey.LIST_OFFSETS: Each("topics", "topics", inside=_PARTITIONS),
    ApiKey.METADATA: Each("topics", "topics"),
    ApiKey.OFFSET_COMMIT: Each("topics", "topics", inside=_PARTITIONS),
    ApiKey.OFFSET_FETCH: Each("groups", "groups"),
    ApiKey.FIND_COORDINATOR: Each("coordinator_keys", "coordinators", name="key", values={"node_id": -1, "port": -1}),
    ApiKey.DESCRIBE_GROUPS: Each("groups", "groups", name="group_id"),
    ApiKey.CREATE_TOPICS: Each("topics", "topics"),
    ApiKey.DELETE_TOPICS: Each("topics", "responses"),
    ApiKey.DELETE_RECORDS: Each(
        "topics", "topics", inside=Each("partitions", "partitions", values={"low_watermark": -1})
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Each("topics", "topics", inside=_PARTITIONS),
    ApiKey.ADD_PARTITIONS_TO_TXN: Each(
        "transactions",
        "results_by_transaction",
        inside=Each(
            "topics", "topic_results", inside=Each("partitions", "results_by_partition", name="partition_index")
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: Each(
        "markers",
        "markers",
        inside=Each("topics", "topics", inside=Each("partition_indexes", "partitions", name="partition_index")),
    ),
    ApiKey.TXN_OFFSET_COMMIT: Each("topics", "topics", inside=_PARTITIONS),
    ApiKey.DESCRIBE_TRANSACTIONS: Each("transactional_ids", "transaction_states", name="transactional_id"),
    ApiKey.DESCRIBE_CONFIGS: Each("resources", "results"),
    ApiKey.ALTER_CONFIGS: Each("resources", "responses"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Each(
        "topics",
        "results",
        name="topic_name",
        within="dirs",
        inside=Each("partitions", "partitions", name="partition_index"),
    ),
    ApiKey.CREATE_PARTITIONS: Each("topics", "results"),
    ApiKey.DELETE_GROUPS: Each("groups_names", "results", name="group_id"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Each("resources", "responses"),
    ApiKey.DESCRIBE_PRODUCERS: Each(
        "topics", "topics", inside=Each("partition_indexes", "partitions", name="partition_index")
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Each("group_ids", "groups", name="group_id"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Each("topics", "topics"),
}

_OFFSETS_BY_PARTITION: Final = Each(
    "groups",
    "groups",
    inside=Each("topics", "topics", inside=Each("partition_indexes", "partitions", name="partition_index")),
)
"""OffsetFetch before version 2, which has no error for the group."""

_ELECTIONS: Final = Each(
    "topic_partitions",
    "replica_election_results",
    inside=Each("partitions", "partition_result", name="partition_id"),
)
"""ElectLeaders in version 0, which has no error at the top."""

TOP: Final[dict[ApiKey, Mapping[str, object]]] = {
    ApiKey.JOIN_GROUP: {"generation_id": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
}
"""What Kafka says beside an error at the top, where that is not the field's default."""


def has_place(key: ApiKey, newest: int) -> bool:
    """Whether `error_response` can answer requests of this API."""
    return key in PLACES or codec.error_response(key, newest, ErrorCode.none, "") is not None


def error_response(key: ApiKey, version: int, newest: int, request: Any, code: ErrorCode, message: str) -> Any:
    """The response, of the newest version, that answers everything in `request` with this error."""
    each = _ELECTIONS if key is ApiKey.ELECT_LEADERS and version == 0 else PLACES.get(key)
    if each is None:
        return replace(codec.error_response(key, newest, code, message), **TOP.get(key, {}))  # type: ignore[type-var]  # a message of any API
    if key is ApiKey.OFFSET_FETCH and version < 2:
        each = _OFFSETS_BY_PARTITION
    response = _response_class(key, newest)
    error = {"error_code": code, "partition_error_code": code, "error_message": message}
    return zero(response, **{each.told: tuple(_repeated(response, each, request, error))})


def _repeated(response: type, each: Each, asked: Any, error: Mapping[str, object]) -> Iterator[Any]:
    element_class = _element_class(response, each.told)
    parents = getattr(asked, each.within) if each.within else (asked,)
    for one in (one for parent in parents for one in getattr(parent, each.asked) or ()):
        values: dict[str, Any] = {each.name: one}
        if is_dataclass(one):
            values = {part.name: getattr(one, part.name) for part in fields(one) if part.name in IDENTITY}
            values |= {each.name: values["name"]} if each.name else {}
        if each.inside is None:
            values |= error
        else:
            values[each.inside.told] = tuple(_repeated(element_class, each.inside, one, error))
        yield zero(element_class, **values, **each.values)


def _element_class(parent: type, name: str) -> type:
    """The class of the elements of a field that is a tuple, or null."""
    (annotation,) = (part.type for part in fields(parent) if part.name == name)
    if get_origin(annotation) is not tuple:
        (annotation,) = (arm for arm in get_args(annotation) if arm is not NoneType)
    element_class: type = get_args(annotation)[0]
    return element_class


def _response_class(key: ApiKey, newest: int) -> type:
    """The class that handlers answer with, where it is none of kio's; see `protocol/shapes`."""
    if key is ApiKey.METADATA:
        from barnabas.protocol.metadata import MetadataResponse

        return MetadataResponse
    if key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        from barnabas.protocol import group_offsets

        if key is ApiKey.OFFSET_COMMIT:
            return group_offsets.OffsetCommitResponse
        return group_offsets.OffsetFetchResponse
    message_class: type = load_response_schema(key, newest)
    return message_class
