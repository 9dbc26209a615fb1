"""Kafka's error codes, and one exception class for each.

A `KafkaError` carries its wire code and a message for people; the code that answers the request turns it into a
response. A code knows whether a client may simply retry, and has a default message. A class is named like its code in
CamelCase: `OFFSET_OUT_OF_RANGE` is `OffsetOutOfRange`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Self


class ErrorCode(IntEnum):
    """Every error code of the protocol: wire value, whether it is retriable, and a default message."""

    retriable: bool
    default_message: str

    if not TYPE_CHECKING:  # a type checker would require all three wherever a code is looked up by its value

        def __new__(cls, value: int, retriable: bool, default_message: str) -> Self:
            code = int.__new__(cls, value)
            code._value_ = value
            code.retriable = retriable
            code.default_message = default_message
            return code

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, False, "the broker failed in a way it did not expect"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is not within the log"
    CORRUPT_MESSAGE = 2, True, "the record data is damaged: checksum, size or format do not fit"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "there is no such topic or partition here"
    INVALID_FETCH_SIZE = 4, False, "the fetch size is invalid"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this broker is not the leader, or not a replica, of the partition"
    REQUEST_TIMED_OUT = 7, True, "the request was not done in time"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica of the partition is not available"
    MESSAGE_TOO_LARGE = 10, False, "a message is larger than the broker accepts"
    STALE_CONTROLLER_EPOCH = 11, False, "another broker has become the controller"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata of the committed offset is too long"
    NETWORK_EXCEPTION = 13, True, "the connection was lost before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still loading"
    COORDINATOR_NOT_AVAILABLE = 15, True, "there is no coordinator at the moment"
    NOT_COORDINATOR = 16, True, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic name is invalid, or the topic does not allow this"
    RECORD_LIST_TOO_LARGE = 18, False, "the batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer replicas are in sync than required"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "appended, but to fewer in-sync replicas than required"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, False, "the generation of the group is another one"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member's protocols have nothing in common with those of the group"
    INVALID_GROUP_ID = 24, False, "the group id is invalid"
    UNKNOWN_MEMBER_ID = 25, False, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside the broker's limits"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not authorized for the cluster"
    INVALID_TIMESTAMP = 32, False, "a timestamp is out of the accepted range"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the SASL mechanism is not supported"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, False, "the version of the API is not supported"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic of this name exists already"
    INVALID_PARTITIONS = 37, False, "the number of partitions is invalid"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is invalid"
    INVALID_CONFIG = 40, False, "the configuration is invalid"
    NOT_CONTROLLER = 41, True, "this broker is not the controller"
    INVALID_REQUEST = 42, False, "the request makes no sense"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the message format cannot do this"
    POLICY_VIOLATION = 44, False, "a policy of the broker forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the producer's sequence number is not the next one"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the producer's sequence number was used before"
    INVALID_PRODUCER_EPOCH = 47, False, "the producer's epoch is old"
    INVALID_TXN_STATE = 48, False, "the state of the transaction does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is outside the broker's limits"
    CONCURRENT_TRANSACTIONS = 51, True, "another operation on the transaction is still going on"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "another transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not authorized for the transactional id"
    SECURITY_DISABLED = 54, False, "security is not switched on"
    OPERATION_NOT_ATTEMPTED = 55, False, "not tried, as another part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the disk failed"
    LOG_DIR_NOT_FOUND = 57, False, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, False, "nothing is known about the producer id"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partition is being reassigned"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are not switched on"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the principal neither owns nor may renew the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "token requests need a channel that is authenticated otherwise"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not authorized for the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "the type of principal is not supported"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the epoch of the fetch session is not the next one"
    LISTENER_NOT_FOUND = 72, True, "the leader has no listener like the one that was asked"
    TOPIC_DELETION_DISABLED = 73, False, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch of the request is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch of the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the version of the request cannot carry this compression"
    STALE_BROKER_EPOCH = 77, False, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, True, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id given here"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group is full"
    FENCED_INSTANCE_ID = 82, False, "another member has taken this group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica that could become the leader is available"
    ELECTION_NOT_NEEDED = 84, True, "the partition has the right leader already"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "the partition is not being reassigned"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group is still subscribed to the topic"
    INVALID_RECORD = 87, False, "a record did not pass the broker's checks"
    UNSTABLE_OFFSET_COMMIT = 88, True, "offsets of open transactions have to be settled first"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota is used up"
    PRODUCER_FENCED = 90, False, "a newer producer uses this transactional id"
    RESOURCE_NOT_FOUND = 91, False, "there is no such resource"
    DUPLICATE_RESOURCE = 92, False, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential is not acceptable"
    INCONSISTENT_VOTER_SET = 94, False, "sender or receiver is not one of the voters"
    INVALID_UPDATE_VERSION = 95, False, "the update version is invalid"
    FEATURE_UPDATE_FAILED = 96, False, "the finalized features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is not within the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "there is no topic of this id here"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "the broker id is in use"
    BROKER_ID_NOT_REGISTERED = 102, False, "the broker id is not registered"
    INCONSISTENT_TOPIC_ID = 103, True, "the log belongs to another topic id"
    INCONSISTENT_CLUSTER_ID = 104, False, "the request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "the fetch session mixes topic ids and names"
    INELIGIBLE_REPLICA = 107, False, "a replica may not be in the new in-sync set"
    NEW_LEADER_ELECTED = 108, False, "the partition was altered and has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset is in remote storage now"
    FENCED_MEMBER_EPOCH = 110, False, "the member epoch is fenced; give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still holds the instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "the group does not support the assignor"
    STALE_MEMBER_EPOCH = 113, False, "the member epoch is old; try again with the current one"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "this kind of endpoint does not answer the request"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is unknown or out of date"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, False, "the registration is invalid"
    TRANSACTION_ABORTABLE = 120, False, "the transaction failed, but can be aborted"
    INVALID_RECORD_STATE = 121, False, "the state of the record does not allow the acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, True, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the epoch of the share session is not the next one"
    FENCED_STATE_EPOCH = 124, False, "the state epoch is not the expected one"
    INVALID_VOTER_KEY = 125, False, "the voter key is that of another replica"
    DUPLICATE_VOTER = 126, False, "the replica is a voter already"
    VOTER_NOT_FOUND = 127, False, "the replica is not a voter"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is invalid"
    REBOOTSTRAP_REQUIRED = 129, False, "start again from the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the topology is invalid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the topology epoch is invalid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the topology epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "the broker has as many share sessions as it may"
    GROUP_DELETION_FAILED = 134, False, "a group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "the description of the topology could not be updated"
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "the controller id is not registered"
    # fmt: on


MAX_MESSAGE_LENGTH = 8_000
"""In characters: a message may quote the client's data, and must fit into a string of the response."""


class KafkaError(Exception):
    """An error that becomes an error code in a response. A message that is too long is cut."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = (message or code.default_message)[:MAX_MESSAGE_LENGTH]
        super().__init__(self.message)

    def without_frames(self) -> Self:
        """Drop traceback and causes, so that the error can be kept in a result.

        They would keep the frames that hold the result, and everything in them, until the next garbage collection.
        """
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class CodedError(KafkaError):
    """The base of the classes that stand for one code each."""

    CODE: ClassVar[ErrorCode]

    def __init__(self, message: str = "") -> None:
        super().__init__(self.CODE, message)


class InvalidRecord(CodedError):
    """INVALID_RECORD, with (index in the batch, message) for each bad record where that is known."""

    CODE = ErrorCode.INVALID_RECORD

    def __init__(self, message: str = "", record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(message)
        self.record_errors = record_errors or []


class InvalidTimestamp(CodedError):
    """INVALID_TIMESTAMP, with record errors as in InvalidRecord; some of them may be other errors of records."""

    CODE = ErrorCode.INVALID_TIMESTAMP

    def __init__(self, message: str = "", record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(message)
        self.record_errors = record_errors or []


# fmt: off
class UnknownServerError(CodedError): CODE = ErrorCode.UNKNOWN_SERVER_ERROR
class OffsetOutOfRange(CodedError): CODE = ErrorCode.OFFSET_OUT_OF_RANGE
class CorruptMessage(CodedError): CODE = ErrorCode.CORRUPT_MESSAGE
class UnknownTopicOrPartition(CodedError): CODE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
class InvalidFetchSize(CodedError): CODE = ErrorCode.INVALID_FETCH_SIZE
class LeaderNotAvailable(CodedError): CODE = ErrorCode.LEADER_NOT_AVAILABLE
class NotLeaderOrFollower(CodedError): CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
class RequestTimedOut(CodedError): CODE = ErrorCode.REQUEST_TIMED_OUT
class BrokerNotAvailable(CodedError): CODE = ErrorCode.BROKER_NOT_AVAILABLE
class ReplicaNotAvailable(CodedError): CODE = ErrorCode.REPLICA_NOT_AVAILABLE
class MessageTooLarge(CodedError): CODE = ErrorCode.MESSAGE_TOO_LARGE
class StaleControllerEpoch(CodedError): CODE = ErrorCode.STALE_CONTROLLER_EPOCH
class OffsetMetadataTooLarge(CodedError): CODE = ErrorCode.OFFSET_METADATA_TOO_LARGE
class NetworkException(CodedError): CODE = ErrorCode.NETWORK_EXCEPTION
class CoordinatorLoadInProgress(CodedError): CODE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
class CoordinatorNotAvailable(CodedError): CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
class NotCoordinator(CodedError): CODE = ErrorCode.NOT_COORDINATOR
class InvalidTopicException(CodedError): CODE = ErrorCode.INVALID_TOPIC_EXCEPTION
class RecordListTooLarge(CodedError): CODE = ErrorCode.RECORD_LIST_TOO_LARGE
class NotEnoughReplicas(CodedError): CODE = ErrorCode.NOT_ENOUGH_REPLICAS
class NotEnoughReplicasAfterAppend(CodedError): CODE = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
class InvalidRequiredAcks(CodedError): CODE = ErrorCode.INVALID_REQUIRED_ACKS
class IllegalGeneration(CodedError): CODE = ErrorCode.ILLEGAL_GENERATION
class InconsistentGroupProtocol(CodedError): CODE = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
class InvalidGroupId(CodedError): CODE = ErrorCode.INVALID_GROUP_ID
class UnknownMemberId(CodedError): CODE = ErrorCode.UNKNOWN_MEMBER_ID
class InvalidSessionTimeout(CodedError): CODE = ErrorCode.INVALID_SESSION_TIMEOUT
class RebalanceInProgress(CodedError): CODE = ErrorCode.REBALANCE_IN_PROGRESS
class InvalidCommitOffsetSize(CodedError): CODE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
class TopicAuthorizationFailed(CodedError): CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
class GroupAuthorizationFailed(CodedError): CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED
class ClusterAuthorizationFailed(CodedError): CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
class UnsupportedSaslMechanism(CodedError): CODE = ErrorCode.UNSUPPORTED_SASL_MECHANISM
class IllegalSaslState(CodedError): CODE = ErrorCode.ILLEGAL_SASL_STATE
class UnsupportedVersion(CodedError): CODE = ErrorCode.UNSUPPORTED_VERSION
class TopicAlreadyExists(CodedError): CODE = ErrorCode.TOPIC_ALREADY_EXISTS
class InvalidPartitions(CodedError): CODE = ErrorCode.INVALID_PARTITIONS
class InvalidReplicationFactor(CodedError): CODE = ErrorCode.INVALID_REPLICATION_FACTOR
class InvalidReplicaAssignment(CodedError): CODE = ErrorCode.INVALID_REPLICA_ASSIGNMENT
class InvalidConfig(CodedError): CODE = ErrorCode.INVALID_CONFIG
class NotController(CodedError): CODE = ErrorCode.NOT_CONTROLLER
class InvalidRequest(CodedError): CODE = ErrorCode.INVALID_REQUEST
class UnsupportedForMessageFormat(CodedError): CODE = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
class PolicyViolation(CodedError): CODE = ErrorCode.POLICY_VIOLATION
class OutOfOrderSequenceNumber(CodedError): CODE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
class DuplicateSequenceNumber(CodedError): CODE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
class InvalidProducerEpoch(CodedError): CODE = ErrorCode.INVALID_PRODUCER_EPOCH
class InvalidTxnState(CodedError): CODE = ErrorCode.INVALID_TXN_STATE
class InvalidProducerIdMapping(CodedError): CODE = ErrorCode.INVALID_PRODUCER_ID_MAPPING
class InvalidTransactionTimeout(CodedError): CODE = ErrorCode.INVALID_TRANSACTION_TIMEOUT
class ConcurrentTransactions(CodedError): CODE = ErrorCode.CONCURRENT_TRANSACTIONS
class TransactionCoordinatorFenced(CodedError): CODE = ErrorCode.TRANSACTION_COORDINATOR_FENCED
class TransactionalIdAuthorizationFailed(CodedError): CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
class SecurityDisabled(CodedError): CODE = ErrorCode.SECURITY_DISABLED
class OperationNotAttempted(CodedError): CODE = ErrorCode.OPERATION_NOT_ATTEMPTED
class KafkaStorageError(CodedError): CODE = ErrorCode.KAFKA_STORAGE_ERROR
class LogDirNotFound(CodedError): CODE = ErrorCode.LOG_DIR_NOT_FOUND
class SaslAuthenticationFailed(CodedError): CODE = ErrorCode.SASL_AUTHENTICATION_FAILED
class UnknownProducerId(CodedError): CODE = ErrorCode.UNKNOWN_PRODUCER_ID
class ReassignmentInProgress(CodedError): CODE = ErrorCode.REASSIGNMENT_IN_PROGRESS
class DelegationTokenAuthDisabled(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
class DelegationTokenNotFound(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
class DelegationTokenOwnerMismatch(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
class DelegationTokenRequestNotAllowed(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
class DelegationTokenAuthorizationFailed(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
class DelegationTokenExpired(CodedError): CODE = ErrorCode.DELEGATION_TOKEN_EXPIRED
class InvalidPrincipalType(CodedError): CODE = ErrorCode.INVALID_PRINCIPAL_TYPE
class NonEmptyGroup(CodedError): CODE = ErrorCode.NON_EMPTY_GROUP
class GroupIdNotFound(CodedError): CODE = ErrorCode.GROUP_ID_NOT_FOUND
class FetchSessionIdNotFound(CodedError): CODE = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
class InvalidFetchSessionEpoch(CodedError): CODE = ErrorCode.INVALID_FETCH_SESSION_EPOCH
class ListenerNotFound(CodedError): CODE = ErrorCode.LISTENER_NOT_FOUND
class TopicDeletionDisabled(CodedError): CODE = ErrorCode.TOPIC_DELETION_DISABLED
class FencedLeaderEpoch(CodedError): CODE = ErrorCode.FENCED_LEADER_EPOCH
class UnknownLeaderEpoch(CodedError): CODE = ErrorCode.UNKNOWN_LEADER_EPOCH
class UnsupportedCompressionType(CodedError): CODE = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
class StaleBrokerEpoch(CodedError): CODE = ErrorCode.STALE_BROKER_EPOCH
class OffsetNotAvailable(CodedError): CODE = ErrorCode.OFFSET_NOT_AVAILABLE
class MemberIdRequired(CodedError): CODE = ErrorCode.MEMBER_ID_REQUIRED
class PreferredLeaderNotAvailable(CodedError): CODE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
class GroupMaxSizeReached(CodedError): CODE = ErrorCode.GROUP_MAX_SIZE_REACHED
class FencedInstanceId(CodedError): CODE = ErrorCode.FENCED_INSTANCE_ID
class EligibleLeadersNotAvailable(CodedError): CODE = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
class ElectionNotNeeded(CodedError): CODE = ErrorCode.ELECTION_NOT_NEEDED
class NoReassignmentInProgress(CodedError): CODE = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
class GroupSubscribedToTopic(CodedError): CODE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
class UnstableOffsetCommit(CodedError): CODE = ErrorCode.UNSTABLE_OFFSET_COMMIT
class ThrottlingQuotaExceeded(CodedError): CODE = ErrorCode.THROTTLING_QUOTA_EXCEEDED
class ProducerFenced(CodedError): CODE = ErrorCode.PRODUCER_FENCED
class ResourceNotFound(CodedError): CODE = ErrorCode.RESOURCE_NOT_FOUND
class DuplicateResource(CodedError): CODE = ErrorCode.DUPLICATE_RESOURCE
class UnacceptableCredential(CodedError): CODE = ErrorCode.UNACCEPTABLE_CREDENTIAL
class InconsistentVoterSet(CodedError): CODE = ErrorCode.INCONSISTENT_VOTER_SET
class InvalidUpdateVersion(CodedError): CODE = ErrorCode.INVALID_UPDATE_VERSION
class FeatureUpdateFailed(CodedError): CODE = ErrorCode.FEATURE_UPDATE_FAILED
class PrincipalDeserializationFailure(CodedError): CODE = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
class SnapshotNotFound(CodedError): CODE = ErrorCode.SNAPSHOT_NOT_FOUND
class PositionOutOfRange(CodedError): CODE = ErrorCode.POSITION_OUT_OF_RANGE
class UnknownTopicId(CodedError): CODE = ErrorCode.UNKNOWN_TOPIC_ID
class DuplicateBrokerRegistration(CodedError): CODE = ErrorCode.DUPLICATE_BROKER_REGISTRATION
class BrokerIdNotRegistered(CodedError): CODE = ErrorCode.BROKER_ID_NOT_REGISTERED
class InconsistentTopicId(CodedError): CODE = ErrorCode.INCONSISTENT_TOPIC_ID
class InconsistentClusterId(CodedError): CODE = ErrorCode.INCONSISTENT_CLUSTER_ID
class TransactionalIdNotFound(CodedError): CODE = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
class FetchSessionTopicIdError(CodedError): CODE = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
class IneligibleReplica(CodedError): CODE = ErrorCode.INELIGIBLE_REPLICA
class NewLeaderElected(CodedError): CODE = ErrorCode.NEW_LEADER_ELECTED
class OffsetMovedToTieredStorage(CodedError): CODE = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
class FencedMemberEpoch(CodedError): CODE = ErrorCode.FENCED_MEMBER_EPOCH
class UnreleasedInstanceId(CodedError): CODE = ErrorCode.UNRELEASED_INSTANCE_ID
class UnsupportedAssignor(CodedError): CODE = ErrorCode.UNSUPPORTED_ASSIGNOR
class StaleMemberEpoch(CodedError): CODE = ErrorCode.STALE_MEMBER_EPOCH
class MismatchedEndpointType(CodedError): CODE = ErrorCode.MISMATCHED_ENDPOINT_TYPE
class UnsupportedEndpointType(CodedError): CODE = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
class UnknownControllerId(CodedError): CODE = ErrorCode.UNKNOWN_CONTROLLER_ID
class UnknownSubscriptionId(CodedError): CODE = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
class TelemetryTooLarge(CodedError): CODE = ErrorCode.TELEMETRY_TOO_LARGE
class InvalidRegistration(CodedError): CODE = ErrorCode.INVALID_REGISTRATION
class TransactionAbortable(CodedError): CODE = ErrorCode.TRANSACTION_ABORTABLE
class InvalidRecordState(CodedError): CODE = ErrorCode.INVALID_RECORD_STATE
class ShareSessionNotFound(CodedError): CODE = ErrorCode.SHARE_SESSION_NOT_FOUND
class InvalidShareSessionEpoch(CodedError): CODE = ErrorCode.INVALID_SHARE_SESSION_EPOCH
class FencedStateEpoch(CodedError): CODE = ErrorCode.FENCED_STATE_EPOCH
class InvalidVoterKey(CodedError): CODE = ErrorCode.INVALID_VOTER_KEY
class DuplicateVoter(CodedError): CODE = ErrorCode.DUPLICATE_VOTER
class VoterNotFound(CodedError): CODE = ErrorCode.VOTER_NOT_FOUND
class InvalidRegularExpression(CodedError): CODE = ErrorCode.INVALID_REGULAR_EXPRESSION
class RebootstrapRequired(CodedError): CODE = ErrorCode.REBOOTSTRAP_REQUIRED
class StreamsInvalidTopology(CodedError): CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY
class StreamsInvalidTopologyEpoch(CodedError): CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH
class StreamsTopologyFenced(CodedError): CODE = ErrorCode.STREAMS_TOPOLOGY_FENCED
class ShareSessionLimitReached(CodedError): CODE = ErrorCode.SHARE_SESSION_LIMIT_REACHED
class GroupDeletionFailed(CodedError): CODE = ErrorCode.GROUP_DELETION_FAILED
class StreamsTopologyDescriptionUpdateFailed(CodedError): CODE = ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
class ControllerIdNotRegistered(CodedError): CODE = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
# fmt: on
