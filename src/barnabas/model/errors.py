"""The errors of Barnabas, each with the Kafka error code that a client is told.

    BarnabasError                 anything we raise on purpose
    ├── ApiError                  has a Kafka error code; `broker/dispatch` and the handlers turn it into a response
    │   └── (one class per code that we raise)
    ├── InvalidFrame              bytes that are not a request: the connection is closed
    ├── ConfigError               a configuration that cannot be used: the broker does not start
    └── StartupError              anything else that keeps a broker from starting

An error is raised where it is found. Its message says what happened, to what, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode

from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_MESSAGE: Final = 2000
"""Characters of a message that clients are told."""

__all__ = ["ApiError", "BarnabasError", "ConfigError", "ErrorCode", "InvalidFrame", "StartupError"]


class InvalidFrame(BarnabasError):
    """What arrived is not a request; the connection that sent it is closed."""


class ConfigError(BarnabasError):
    """A configuration that cannot be used; the message names the key and what it takes."""


class StartupError(BarnabasError):
    """The broker cannot start; the message says why and what to do."""


class ApiError(BarnabasError):
    """A failure that Kafka has a code for. The message reaches clients that can show one."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message that fits into a response, where a string has 32,767 bytes, whatever a client's names in it are."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


class OffsetOutOfRange(ApiError):
    """The offset lies before the log's start or after its end."""

    code = ErrorCode.offset_out_of_range


class CorruptMessage(ApiError):
    """The batch's bytes are damaged: CRC, length or structure."""

    code = ErrorCode.corrupt_message


class UnknownTopicOrPartition(ApiError):
    """This broker knows no such topic or partition."""

    code = ErrorCode.unknown_topic_or_partition


class UnknownTopicId(ApiError):
    """No topic has this id."""

    code = ErrorCode.unknown_topic_id


class InconsistentTopicId(ApiError):
    """The topic's id is not the one on disk: it was deleted and made again."""

    code = ErrorCode.inconsistent_topic_id


class LeaderNotAvailable(ApiError):
    """The partition has no leader at the moment."""

    code = ErrorCode.leader_not_available


class NotLeaderOrFollower(ApiError):
    """This broker is not the partition's leader."""

    code = ErrorCode.not_leader_or_follower


class MessageTooLarge(ApiError):
    """The batch is larger than max.message.bytes."""

    code = ErrorCode.message_too_large


class RecordListTooLarge(ApiError):
    """The batch is larger than a segment."""

    code = ErrorCode.record_list_too_large


class InvalidTopic(ApiError):
    """The topic's name breaks Kafka's rules, or the topic may not be used that way."""

    code = ErrorCode.invalid_topic_exception


class TopicAlreadyExists(ApiError):
    """A topic of this name exists."""

    code = ErrorCode.topic_already_exists


class TopicDeletionDisabled(ApiError):
    """delete.topic.enable is false."""

    code = ErrorCode.topic_deletion_disabled


class InvalidPartitions(ApiError):
    """The number of partitions makes no sense."""

    code = ErrorCode.invalid_partitions


class InvalidReplicationFactor(ApiError):
    """The replication factor is below 1 or above the number of brokers."""

    code = ErrorCode.invalid_replication_factor


class InvalidReplicaAssignment(ApiError):
    """A manual assignment names unknown or repeated brokers, or skips a partition."""

    code = ErrorCode.invalid_replica_assignment


class InvalidConfig(ApiError):
    """A configuration key or value that Kafka would not take."""

    code = ErrorCode.invalid_config


class InvalidRequest(ApiError):
    """The request contradicts itself."""

    code = ErrorCode.invalid_request


class UnsupportedVersion(ApiError):
    """The broker does not speak this version of the API."""

    code = ErrorCode.unsupported_version


class UnsupportedForMessageFormat(ApiError):
    """The batch is of an old format (magic 0 or 1)."""

    code = ErrorCode.unsupported_for_message_format


class UnsupportedCompressionType(ApiError):
    """The batch names a codec that its request version does not know."""

    code = ErrorCode.unsupported_compression_type


class RecordError(NamedTuple):
    """One record of a batch that was refused because of it."""

    batch_index: int
    """Which record of the batch, from 0 on."""
    message: str


class RecordsRefused(ApiError):
    """A batch was refused because of its records; Produce names them, where they are known."""

    def __init__(self, message: str, records: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.records = records


class InvalidRecord(RecordsRefused):
    """A record that breaks the topic's rules, such as one without key in a compacted topic."""

    code = ErrorCode.invalid_record


class InvalidTimestamp(RecordsRefused):
    """A timestamp outside message.timestamp.before/after.max.ms."""

    code = ErrorCode.invalid_timestamp


class InvalidRequiredAcks(ApiError):
    """acks is not 0, 1 or -1 (all)."""

    code = ErrorCode.invalid_required_acks


class NotEnoughReplicas(ApiError):
    """Fewer replicas are in sync than min.insync.replicas; nothing was stored."""

    code = ErrorCode.not_enough_replicas


class NotEnoughReplicasAfterAppend(ApiError):
    """The records are stored and committed, but by fewer replicas than min.insync.replicas."""

    code = ErrorCode.not_enough_replicas_after_append


class OutOfOrderSequence(ApiError):
    """An idempotent producer's batch does not follow its last one."""

    code = ErrorCode.out_of_order_sequence_number


class InvalidProducerEpoch(ApiError):
    """The producer id was taken over by a newer epoch."""

    code = ErrorCode.invalid_producer_epoch


class InvalidTxnState(ApiError):
    """The batch does not fit the state of its producer's transaction."""

    code = ErrorCode.invalid_txn_state


class UnknownProducerId(ApiError):
    """The log remembers nothing of this producer id."""

    code = ErrorCode.unknown_producer_id


class FencedLeaderEpoch(ApiError):
    """The client's leader epoch is older than the partition's."""

    code = ErrorCode.fenced_leader_epoch


class UnknownLeaderEpoch(ApiError):
    """The client's leader epoch is newer than the partition's."""

    code = ErrorCode.unknown_leader_epoch


class OffsetNotAvailable(ApiError):
    """A new leader does not know yet how far the log is committed."""

    code = ErrorCode.offset_not_available


class FetchSessionIdNotFound(ApiError):
    """The fetch session was never there, or was evicted."""

    code = ErrorCode.fetch_session_id_not_found


class InvalidFetchSessionEpoch(ApiError):
    """The fetch session's epoch is not the one expected."""

    code = ErrorCode.invalid_fetch_session_epoch


class StorageFailed(ApiError):
    """The log directory failed: a full disk, or a write or sync that did not succeed."""

    code = ErrorCode.kafka_storage_error


class LogDirNotFound(ApiError):
    """No log directory of this path is configured."""

    code = ErrorCode.log_dir_not_found


class CoordinatorNotAvailable(ApiError):
    """No coordinator can be named at the moment."""

    code = ErrorCode.coordinator_not_available


class CoordinatorLoadInProgress(ApiError):
    """The coordinator is here, but has not read its log to the end yet."""

    code = ErrorCode.coordinator_load_in_progress


class NotCoordinator(ApiError):
    """Another broker coordinates this group or transactional id."""

    code = ErrorCode.not_coordinator


class UnknownServerError(ApiError):
    """Something failed in the broker that no client is to blame for."""

    code = ErrorCode.unknown_server_error


class NotController(ApiError):
    """Another broker is the controller."""

    code = ErrorCode.not_controller


class PolicyViolation(ApiError):
    """The request is well-formed, but a rule of this cluster forbids it."""

    code = ErrorCode.policy_violation


class RequestTimedOut(ApiError):
    """The work did not finish within the request's time."""

    code = ErrorCode.request_timed_out


class TransactionalIdNotFound(ApiError):
    """No transaction coordinator knows this transactional id."""

    code = ErrorCode.transactional_id_not_found


class InvalidGroupId(ApiError):
    """A group's id may not be empty."""

    code = ErrorCode.invalid_group_id


class GroupIdNotFound(ApiError):
    """No group has this id."""

    code = ErrorCode.group_id_not_found


class NonEmptyGroup(ApiError):
    """The group has members, so this may not be done to it."""

    code = ErrorCode.non_empty_group


class GroupMaxSizeReached(ApiError):
    """The group has as many members as it may have."""

    code = ErrorCode.group_max_size_reached


class InvalidSessionTimeout(ApiError):
    """The session timeout lies outside group.min.session.timeout.ms and group.max.session.timeout.ms."""

    code = ErrorCode.invalid_session_timeout


class InconsistentGroupProtocol(ApiError):
    """The member speaks no protocol that all other members speak too."""

    code = ErrorCode.inconsistent_group_protocol


class UnknownMemberId(ApiError):
    """The group has no such member."""

    code = ErrorCode.unknown_member_id


class FencedInstanceId(ApiError):
    """Another member has taken over this group.instance.id."""

    code = ErrorCode.fenced_instance_id


class IllegalGeneration(ApiError):
    """The member speaks of another generation than the group is in."""

    code = ErrorCode.illegal_generation


class RebalanceInProgress(ApiError):
    """The group is handing out partitions anew; the member should join again."""

    code = ErrorCode.rebalance_in_progress


class FencedMemberEpoch(ApiError):
    """The member's epoch is not the one known here: it must give up its partitions and join again."""

    code = ErrorCode.fenced_member_epoch


class StaleMemberEpoch(ApiError):
    """The member's epoch is not the current one: it must wait for its next heartbeat and try again."""

    code = ErrorCode.stale_member_epoch


class UnreleasedInstanceId(ApiError):
    """The member that has this group.instance.id has not left yet."""

    code = ErrorCode.unreleased_instance_id


class UnsupportedAssignor(ApiError):
    """The broker has no assignor of this name."""

    code = ErrorCode.unsupported_assignor


class InvalidRegularExpression(ApiError):
    """The pattern of a subscription cannot be used."""

    code = ErrorCode.invalid_regular_expression


class StaleBrokerEpoch(ApiError):
    """The broker that asks, or is told, has registered anew since."""

    code = ErrorCode.stale_broker_epoch


class InvalidUpdateVersion(ApiError):
    """A change was made from a state that is not the current one, or to a level that a feature cannot have."""

    code = ErrorCode.invalid_update_version


class IneligibleReplica(ApiError):
    """A replica that is down, or about to stop, cannot be in sync."""

    code = ErrorCode.ineligible_replica


class NewLeaderElected(ApiError):
    """A change of the ISR ended a reassignment, and with it the leadership of the broker that asked."""

    code = ErrorCode.new_leader_elected


class ElectionNotNeeded(ApiError):
    """The partition has the leader that an election would give it."""

    code = ErrorCode.election_not_needed


class PreferredLeaderNotAvailable(ApiError):
    """The preferred leader is not in sync, or not up."""

    code = ErrorCode.preferred_leader_not_available


class EligibleLeadersNotAvailable(ApiError):
    """No replica is up that could lead."""

    code = ErrorCode.eligible_leaders_not_available


class ReplicaNotAvailable(ApiError):
    """The broker does not have the partition."""

    code = ErrorCode.replica_not_available


class NoReassignmentInProgress(ApiError):
    """There is nothing to cancel."""

    code = ErrorCode.no_reassignment_in_progress


class StaleControllerEpoch(ApiError):
    """The message is of a controller that was replaced."""

    code = ErrorCode.stale_controller_epoch


class UnknownControllerId(ApiError):
    """The message is of a controller that the metadata tree does not know, or does not know yet."""

    code = ErrorCode.unknown_controller_id


class BrokerIdNotRegistered(ApiError):
    """The broker, or the registration of it that a message is for, is not in the metadata tree, or not yet."""

    code = ErrorCode.broker_id_not_registered


class ClusterAuthorizationFailed(ApiError):
    """The caller may not do this with the cluster: only its brokers may."""

    code = ErrorCode.cluster_authorization_failed


class InconsistentClusterId(ApiError):
    """The caller means another cluster."""

    code = ErrorCode.inconsistent_cluster_id


class TopicAuthorizationFailed(ApiError):
    """The caller may not do this with the topic."""

    code = ErrorCode.topic_authorization_failed


class InvalidProducerIdMapping(ApiError):
    """The producer id is not the one of the transactional id."""

    code = ErrorCode.invalid_producer_id_mapping


class ProducerFenced(ApiError):
    """A newer producer has the transactional id."""

    code = ErrorCode.producer_fenced


class ConcurrentTransactions(ApiError):
    """The last transaction of this id is still being ended: try again."""

    code = ErrorCode.concurrent_transactions


class InvalidTransactionTimeout(ApiError):
    """The timeout is not positive, or above transaction.max.timeout.ms."""

    code = ErrorCode.invalid_transaction_timeout


class TransactionCoordinatorFenced(ApiError):
    """The marker is of a coordinator that was replaced."""

    code = ErrorCode.transaction_coordinator_fenced


class TransactionAbortable(ApiError):
    """The partition is not part of the transaction: the producer is to abort it."""

    code = ErrorCode.transaction_abortable


class TransactionalIdAuthorizationFailed(ApiError):
    """The caller may not use the transactional id, or names none where one is needed."""

    code = ErrorCode.transactional_id_authorization_failed
