"""The errors of Barnabas, each with the Kafka error code that a client is told.

    BarnabasError                 anything we raise on purpose
    ├── ApiError                  has a Kafka error code; the dispatcher and the handlers turn it into a response
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


class OtherProtocol(InvalidFrame):
    """What arrived is the beginning of another protocol than Kafka's."""


class ConfigError(BarnabasError):
    """A configuration that cannot be used; the message names the key and what it takes."""


class StartupError(BarnabasError):
    """The broker cannot start; the message says why and what to do."""


class ApiError(BarnabasError):
    """A failure that Kafka has a code for. The message reaches clients that can show one."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error

    def __init_subclass__(cls, *, code: ErrorCode | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message that fits into a response, where a string has 32,767 bytes, whatever a client's names in it are."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


class OffsetOutOfRange(ApiError, code=ErrorCode.offset_out_of_range):
    """The offset lies before the log's start or after its end."""


class CorruptMessage(ApiError, code=ErrorCode.corrupt_message):
    """The batch's bytes are damaged: CRC, length or structure."""


class UnknownTopicOrPartition(ApiError, code=ErrorCode.unknown_topic_or_partition):
    """The topic or partition does not exist, or this broker does not know it yet."""


class UnknownTopicId(ApiError, code=ErrorCode.unknown_topic_id):
    """No topic has this id."""


class InconsistentTopicId(ApiError, code=ErrorCode.inconsistent_topic_id):
    """The topic's id is not the one on disk: it was deleted and made again."""


class NotLeaderOrFollower(ApiError, code=ErrorCode.not_leader_or_follower):
    """This broker is not the partition's leader."""


class MessageTooLarge(ApiError, code=ErrorCode.message_too_large):
    """The batch is larger than max.message.bytes."""


class RecordListTooLarge(ApiError, code=ErrorCode.record_list_too_large):
    """The batch is larger than a segment."""


class InvalidTopic(ApiError, code=ErrorCode.invalid_topic_exception):
    """The topic's name breaks Kafka's rules, or the topic may not be used that way."""


class TopicAlreadyExists(ApiError, code=ErrorCode.topic_already_exists):
    """A topic of this name exists."""


class TopicDeletionDisabled(ApiError, code=ErrorCode.topic_deletion_disabled):
    """delete.topic.enable is false."""


class InvalidPartitions(ApiError, code=ErrorCode.invalid_partitions):
    """The number of partitions is invalid."""


class InvalidReplicationFactor(ApiError, code=ErrorCode.invalid_replication_factor):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(ApiError, code=ErrorCode.invalid_replica_assignment):
    """A manual assignment names unknown or repeated brokers, or skips a partition."""


class InvalidConfig(ApiError, code=ErrorCode.invalid_config):
    """A configuration key or value that Kafka would not take."""


class InvalidRequest(ApiError, code=ErrorCode.invalid_request):
    """The request contradicts itself."""


class UnsupportedVersion(ApiError, code=ErrorCode.unsupported_version):
    """The broker does not speak this version of the API."""


class UnsupportedCompressionType(ApiError, code=ErrorCode.unsupported_compression_type):
    """The batch names a codec that its request version does not know."""


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


class InvalidRecord(RecordsRefused, code=ErrorCode.invalid_record):
    """A record that breaks the topic's rules, such as one without key in a compacted topic."""


class InvalidTimestamp(RecordsRefused, code=ErrorCode.invalid_timestamp):
    """A timestamp outside message.timestamp.before/after.max.ms."""


class InvalidRequiredAcks(ApiError, code=ErrorCode.invalid_required_acks):
    """acks is not 0, 1 or -1 (all)."""


class NotEnoughReplicas(ApiError, code=ErrorCode.not_enough_replicas):
    """Fewer replicas are in sync than min.insync.replicas; nothing was stored."""


class NotEnoughReplicasAfterAppend(ApiError, code=ErrorCode.not_enough_replicas_after_append):
    """The records are stored and committed, but by fewer replicas than min.insync.replicas."""


class OutOfOrderSequence(ApiError, code=ErrorCode.out_of_order_sequence_number):
    """An idempotent producer's batch does not follow its last one."""


class InvalidProducerEpoch(ApiError, code=ErrorCode.invalid_producer_epoch):
    """A newer producer epoch uses the producer id."""


class InvalidTxnState(ApiError, code=ErrorCode.invalid_txn_state):
    """The batch does not fit the state of its producer's transaction."""


class FencedLeaderEpoch(ApiError, code=ErrorCode.fenced_leader_epoch):
    """The client's leader epoch is older than the partition's."""


class UnknownLeaderEpoch(ApiError, code=ErrorCode.unknown_leader_epoch):
    """The client's leader epoch is newer than the partition's."""


class OffsetNotAvailable(ApiError, code=ErrorCode.offset_not_available):
    """A new leader does not know yet how far the log is committed."""


class StorageFailed(ApiError, code=ErrorCode.kafka_storage_error):
    """The log directory failed: a full disk, or a write or sync that did not succeed."""


class LogDirNotFound(ApiError, code=ErrorCode.log_dir_not_found):
    """No log directory of this path is configured."""


class CoordinatorNotAvailable(ApiError, code=ErrorCode.coordinator_not_available):
    """No coordinator can be named at the moment."""


class CoordinatorLoadInProgress(ApiError, code=ErrorCode.coordinator_load_in_progress):
    """The coordinator is here, but has not read its log to the end yet."""


class NotCoordinator(ApiError, code=ErrorCode.not_coordinator):
    """This broker is not the coordinator of the group or transactional id."""


class UnknownServerError(ApiError, code=ErrorCode.unknown_server_error):
    """The broker failed; the request was not at fault."""


class NotController(ApiError, code=ErrorCode.not_controller):
    """Another broker is the controller."""


class PolicyViolation(ApiError, code=ErrorCode.policy_violation):
    """The request is well-formed, but a rule of this cluster forbids it."""


class RequestTimedOut(ApiError, code=ErrorCode.request_timed_out):
    """The work did not finish within the request's time."""


class TransactionalIdNotFound(ApiError, code=ErrorCode.transactional_id_not_found):
    """No transaction coordinator knows this transactional id."""


class InvalidGroupId(ApiError, code=ErrorCode.invalid_group_id):
    """A group's id may not be empty."""


class GroupIdNotFound(ApiError, code=ErrorCode.group_id_not_found):
    """No group has this id."""


class NonEmptyGroup(ApiError, code=ErrorCode.non_empty_group):
    """The group has members, so this may not be done to it."""


class GroupMaxSizeReached(ApiError, code=ErrorCode.group_max_size_reached):
    """The group has as many members as it may have."""


class InvalidSessionTimeout(ApiError, code=ErrorCode.invalid_session_timeout):
    """The session timeout lies outside group.min.session.timeout.ms and group.max.session.timeout.ms."""


class InconsistentGroupProtocol(ApiError, code=ErrorCode.inconsistent_group_protocol):
    """The member has no protocol in common with all other members."""


class UnknownMemberId(ApiError, code=ErrorCode.unknown_member_id):
    """The group has no such member."""


class FencedInstanceId(ApiError, code=ErrorCode.fenced_instance_id):
    """Another member has taken over this group.instance.id."""


class IllegalGeneration(ApiError, code=ErrorCode.illegal_generation):
    """The member's generation is not the current one of the group."""


class RebalanceInProgress(ApiError, code=ErrorCode.rebalance_in_progress):
    """The group is rebalancing; the member must join again."""


class FencedMemberEpoch(ApiError, code=ErrorCode.fenced_member_epoch):
    """The member's epoch is not the one known here: it must give up its partitions and join again."""


class StaleMemberEpoch(ApiError, code=ErrorCode.stale_member_epoch):
    """The member's epoch is not the current one: it must wait for its next heartbeat and try again."""


class UnreleasedInstanceId(ApiError, code=ErrorCode.unreleased_instance_id):
    """The member that has this group.instance.id has not left yet."""


class UnsupportedAssignor(ApiError, code=ErrorCode.unsupported_assignor):
    """The broker has no assignor of this name."""


class InvalidRegularExpression(ApiError, code=ErrorCode.invalid_regular_expression):
    """The pattern of a subscription cannot be used."""


class StaleBrokerEpoch(ApiError, code=ErrorCode.stale_broker_epoch):
    """The broker that the request is from or for has registered again since."""


class InvalidUpdateVersion(ApiError, code=ErrorCode.invalid_update_version):
    """A change was made from a state that is not the current one, or to a level that a feature cannot have."""


class IneligibleReplica(ApiError, code=ErrorCode.ineligible_replica):
    """A replica that is down, or about to stop, cannot be in sync."""


class NewLeaderElected(ApiError, code=ErrorCode.new_leader_elected):
    """A change of the ISR ended a reassignment, and with it the leadership of the broker that asked."""


class ElectionNotNeeded(ApiError, code=ErrorCode.election_not_needed):
    """The partition has the leader that an election would give it."""


class PreferredLeaderNotAvailable(ApiError, code=ErrorCode.preferred_leader_not_available):
    """The preferred leader is not in sync, or not up."""


class EligibleLeadersNotAvailable(ApiError, code=ErrorCode.eligible_leaders_not_available):
    """No replica is up that could lead."""


class ReplicaNotAvailable(ApiError, code=ErrorCode.replica_not_available):
    """This broker has no replica of the partition."""


class NoReassignmentInProgress(ApiError, code=ErrorCode.no_reassignment_in_progress):
    """The partition has no reassignment to cancel."""


class StaleControllerEpoch(ApiError, code=ErrorCode.stale_controller_epoch):
    """The message was sent by a controller that was replaced."""


class UnknownControllerId(ApiError, code=ErrorCode.unknown_controller_id):
    """The message was sent by a controller that is not in the metadata tree, or not yet."""


class BrokerIdNotRegistered(ApiError, code=ErrorCode.broker_id_not_registered):
    """The broker, or the registration of it that a message is for, is not in the metadata tree, or not yet."""


class ClusterAuthorizationFailed(ApiError, code=ErrorCode.cluster_authorization_failed):
    """The caller may not do this with the cluster: only its brokers may."""


class InconsistentClusterId(ApiError, code=ErrorCode.inconsistent_cluster_id):
    """The request is for another cluster."""


class GroupAuthorizationFailed(ApiError, code=ErrorCode.group_authorization_failed):
    """The caller may not read for this group."""


class TopicAuthorizationFailed(ApiError, code=ErrorCode.topic_authorization_failed):
    """The caller may not do this with the topic."""


class InvalidProducerIdMapping(ApiError, code=ErrorCode.invalid_producer_id_mapping):
    """The producer id is not the one of the transactional id."""


class ProducerFenced(ApiError, code=ErrorCode.producer_fenced):
    """A newer producer uses the transactional id."""


class ConcurrentTransactions(ApiError, code=ErrorCode.concurrent_transactions):
    """The last transaction of this transactional id is still ending: try again."""


class InvalidTransactionTimeout(ApiError, code=ErrorCode.invalid_transaction_timeout):
    """The timeout is not positive, or above transaction.max.timeout.ms."""


class TransactionCoordinatorFenced(ApiError, code=ErrorCode.transaction_coordinator_fenced):
    """The marker was sent by a coordinator that was replaced."""


class TransactionAbortable(ApiError, code=ErrorCode.transaction_abortable):
    """The partition is not part of the transaction; the producer must abort it."""


class TransactionalIdAuthorizationFailed(ApiError, code=ErrorCode.transactional_id_authorization_failed):
    """The caller may not use the transactional id, or names none where one is needed."""


class PrincipalDeserializationFailure(ApiError, code=ErrorCode.principal_deserialization_failure):
    """The principal in an envelope cannot be read."""


class SecurityDisabled(ApiError, code=ErrorCode.security_disabled):
    """There are no ACLs: the broker has no authorizer."""


class UnsupportedSaslMechanism(ApiError, code=ErrorCode.unsupported_sasl_mechanism):
    """The SASL mechanism is not known, or not offered."""


class UnacceptableCredential(ApiError, code=ErrorCode.unacceptable_credential):
    """A credential that is to be stored is not safe, or belongs to nobody."""


class DuplicateResource(ApiError, code=ErrorCode.duplicate_resource):
    """The request names the same thing twice."""


class ResourceNotFound(ApiError, code=ErrorCode.resource_not_found):
    """What the request names is not there."""


class DelegationTokenRequestNotAllowed(ApiError, code=ErrorCode.delegation_token_request_not_allowed):
    """Who logged in with a delegation token, or not at all, may not ask for this."""


class DelegationTokenAuthDisabled(ApiError, code=ErrorCode.delegation_token_auth_disabled):
    """The broker has no key to make delegation tokens with."""


class DelegationTokenNotFound(ApiError, code=ErrorCode.delegation_token_not_found):
    """There is no delegation token with this HMAC."""


class DelegationTokenOwnerMismatch(ApiError, code=ErrorCode.delegation_token_owner_mismatch):
    """The delegation token belongs to somebody else."""


class DelegationTokenAuthorizationFailed(ApiError, code=ErrorCode.delegation_token_authorization_failed):
    """The caller may not have delegation tokens made for this owner."""


class DelegationTokenExpired(ApiError, code=ErrorCode.delegation_token_expired):
    """The delegation token is over."""


class InvalidPrincipalType(ApiError, code=ErrorCode.invalid_principal_type):
    """Only users own and renew delegation tokens."""


class FencedStateEpoch(ApiError, code=ErrorCode.fenced_state_epoch):
    """The state of a share partition was initialized anew: what is written belongs to the state before."""


class InvalidRecordState(ApiError, code=ErrorCode.invalid_record_state):
    """A record cannot be acknowledged in the state that it is in, or not by this member."""


class ShareSessionNotFound(ApiError, code=ErrorCode.share_session_not_found):
    """The member has no share session on this connection."""


class InvalidShareSessionEpoch(ApiError, code=ErrorCode.invalid_share_session_epoch):
    """The share session expects another epoch."""


class ShareSessionLimitReached(ApiError, code=ErrorCode.share_session_limit_reached):
    """The broker has no room for another share session."""


class ThrottlingQuotaExceeded(ApiError, code=ErrorCode.throttling_quota_exceeded):
    """The client has changed so many topics that it has to wait."""
