"""The APIs that the clients of Apache Kafka 4.3.0 speak, and which version such a client uses with a broker."""

from __future__ import annotations

from typing import NamedTuple


class ClientApi(NamedTuple):
    """An API of Kafka 4.3.0's clients, with its oldest and newest version."""

    name: str
    oldest: int
    newest: int


CLIENT_APIS = {
    0: ClientApi("Produce", 3, 13),
    1: ClientApi("Fetch", 4, 18),
    2: ClientApi("ListOffsets", 1, 11),
    3: ClientApi("Metadata", 0, 13),
    8: ClientApi("OffsetCommit", 2, 10),
    9: ClientApi("OffsetFetch", 1, 10),
    10: ClientApi("FindCoordinator", 0, 6),
    11: ClientApi("JoinGroup", 0, 9),
    12: ClientApi("Heartbeat", 0, 4),
    13: ClientApi("LeaveGroup", 0, 5),
    14: ClientApi("SyncGroup", 0, 5),
    15: ClientApi("DescribeGroups", 0, 6),
    16: ClientApi("ListGroups", 0, 5),
    17: ClientApi("SaslHandshake", 0, 1),
    18: ClientApi("ApiVersions", 0, 4),
    19: ClientApi("CreateTopics", 2, 7),
    20: ClientApi("DeleteTopics", 1, 6),
    21: ClientApi("DeleteRecords", 0, 2),
    22: ClientApi("InitProducerId", 0, 5),
    23: ClientApi("OffsetForLeaderEpoch", 2, 4),
    24: ClientApi("AddPartitionsToTxn", 0, 5),
    25: ClientApi("AddOffsetsToTxn", 0, 4),
    26: ClientApi("EndTxn", 0, 5),
    27: ClientApi("WriteTxnMarkers", 1, 2),
    28: ClientApi("TxnOffsetCommit", 0, 5),
    29: ClientApi("DescribeAcls", 1, 3),
    30: ClientApi("CreateAcls", 1, 3),
    31: ClientApi("DeleteAcls", 1, 3),
    32: ClientApi("DescribeConfigs", 1, 4),
    33: ClientApi("AlterConfigs", 0, 2),
    34: ClientApi("AlterReplicaLogDirs", 1, 2),
    35: ClientApi("DescribeLogDirs", 1, 5),
    36: ClientApi("SaslAuthenticate", 0, 2),
    37: ClientApi("CreatePartitions", 0, 3),
    38: ClientApi("CreateDelegationToken", 1, 3),
    39: ClientApi("RenewDelegationToken", 1, 2),
    40: ClientApi("ExpireDelegationToken", 1, 2),
    41: ClientApi("DescribeDelegationToken", 1, 3),
    42: ClientApi("DeleteGroups", 0, 2),
    43: ClientApi("ElectLeaders", 0, 2),
    44: ClientApi("IncrementalAlterConfigs", 0, 1),
    45: ClientApi("AlterPartitionReassignments", 0, 1),
    46: ClientApi("ListPartitionReassignments", 0, 0),
    47: ClientApi("OffsetDelete", 0, 0),
    48: ClientApi("DescribeClientQuotas", 0, 1),
    49: ClientApi("AlterClientQuotas", 0, 1),
    50: ClientApi("DescribeUserScramCredentials", 0, 0),
    51: ClientApi("AlterUserScramCredentials", 0, 0),
    55: ClientApi("DescribeQuorum", 0, 2),
    57: ClientApi("UpdateFeatures", 0, 2),
    60: ClientApi("DescribeCluster", 0, 2),
    61: ClientApi("DescribeProducers", 0, 0),
    64: ClientApi("UnregisterBroker", 0, 0),
    65: ClientApi("DescribeTransactions", 0, 0),
    66: ClientApi("ListTransactions", 0, 2),
    68: ClientApi("ConsumerGroupHeartbeat", 0, 1),
    69: ClientApi("ConsumerGroupDescribe", 0, 1),
    71: ClientApi("GetTelemetrySubscriptions", 0, 0),
    72: ClientApi("PushTelemetry", 0, 0),
    74: ClientApi("ListConfigResources", 0, 1),
    75: ClientApi("DescribeTopicPartitions", 0, 0),
    76: ClientApi("ShareGroupHeartbeat", 1, 1),
    77: ClientApi("ShareGroupDescribe", 1, 1),
    78: ClientApi("ShareFetch", 1, 2),
    79: ClientApi("ShareAcknowledge", 1, 2),
    80: ClientApi("AddRaftVoter", 0, 1),
    81: ClientApi("RemoveRaftVoter", 0, 0),
    83: ClientApi("InitializeShareGroupState", 0, 0),
    84: ClientApi("ReadShareGroupState", 0, 0),
    85: ClientApi("WriteShareGroupState", 0, 1),
    86: ClientApi("DeleteShareGroupState", 0, 0),
    87: ClientApi("ReadShareGroupStateSummary", 0, 1),
    88: ClientApi("StreamsGroupHeartbeat", 0, 0),
    89: ClientApi("StreamsGroupDescribe", 0, 0),
    90: ClientApi("DescribeShareGroupOffsets", 0, 1),
    91: ClientApi("AlterShareGroupOffsets", 0, 0),
    92: ClientApi("DeleteShareGroupOffsets", 0, 0),
}


def name_of(key: int) -> str:
    """Kafka's name of an API."""
    return CLIENT_APIS[key].name if key in CLIENT_APIS else "UNKNOWN"


def span_text(span: tuple[int, int]) -> str:
    """`0 to 13`, or one number."""
    lowest, highest = span
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def usable(key: int, span: tuple[int, int]) -> int | None:
    """The newest version that both know; None if there is none."""
    api = CLIENT_APIS.get(key)
    if api is None or api.newest < span[0] or span[1] < api.oldest:
        return None
    return min(api.newest, span[1])


def usable_text(key: int, span: tuple[int, int]) -> str:
    """What kafka-broker-api-versions says about it."""
    if key not in CLIENT_APIS:
        return ""
    version = usable(key, span)
    if version is None:
        return f" [unusable: node too {'new' if CLIENT_APIS[key].newest < span[0] else 'old'}]"
    return f" [usable: {version}]"
