"""Refusals over the wire: the same requests, under the same ACLs, to Apache Kafka 4.4 and to Klamm.

The client under test is User:ANONYMOUS from 127.0.0.2. The client that prepares everything is the same from 127.0.0.1;
ACLs tell them apart by the host. A case is a request and a set of rights out of those in the table for its API: none,
each alone, all but each, all, and all on the topic `t` only. Codes of authorization, names, and the bits of authorized
operations are compared. `BETTER` has the cases in which Klamm is stricter.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.broker.apis.rights.table import RIGHTS, Right, Special
from klamm.broker.security.authorizer.acls import Acl
from klamm.broker.security.authorizer.codes import CLUSTER_NAME, Operation, ResourceType
from klamm.client.blocking import NodeClient
from klamm.config.rows_cluster import STANDARD_AUTHORIZER
from klamm.protocol.apis import ApiKey
from klamm.protocol.fields import specs
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.describe_acls import DescribeAclsRequest
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support import requests_by_api
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.java

ANONYMOUS, ADMIN, SUBJECT = "User:ANONYMOUS", "127.0.0.1", "127.0.0.2"
ALLOW, LITERAL, ANY = 3, 3, 1
CONFIG = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
}
SAMPLE = 120
WAIT_S = 20.0

AUTHORIZATION = {29, 30, 31, 53, 55, 65}
PRINTED = re.compile(
    "name|topic|topic_name|group_id|transactional_id|key|resource_name|resource_type|partition|partition_index|"
    "partition_id|index|num_partitions|replication_factor|is_internal"
)
ONLY_WHETHER = {"configs", "config_resources", "records", "members", "api_keys", "supported_features", "nodes"}
SKIPPED = {"brokers", "node_endpoints", "aborted_transactions", "diverging_epoch", "current_leader", "snapshot_id"}
NOT_ASKED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}

BETTER: Mapping[tuple[int, str], str] = {
    (ApiKey.FETCH, "debug"): "Kafka shows a debugging consumer what lies above the high watermark",
    (ApiKey.LIST_OFFSETS, "debug"): "as for Fetch",
}


class Case(NamedTuple):
    api: int
    version: int
    label: str
    rights: frozenset[tuple[Right, str]]

    def __str__(self) -> str:
        rights = sorted(f"{right.operation.name} {right.resource.name} {name}" for right, name in self.rights)
        return f"{ApiKey(self.api).name} v{self.version} {self.label!r} with {rights}"


class Side:
    """One of the brokers, and both its clients."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.admin = self._client(ADMIN)
        self.subject = self._client(SUBJECT)

    def begin(self) -> None:
        """Make the ACLs of the admin, and what requests are about."""
        everything = [(2, "*"), (3, "*"), (4, CLUSTER_NAME), (5, "*"), (6, "*")]
        self._add(Acl(kind, name, LITERAL, ANONYMOUS, ADMIN, Operation.ALL, ALLOW) for kind, name in everything)
        self._await_acls(ADMIN, len(everything))
        for kind in (0, 1):
            find = FindCoordinatorRequest(key="g", key_type=kind)
            self._until_done(lambda find=find: self.admin.request(find, 3).error_code)  # type: ignore[misc]
        for name in ("t", "victim"):
            self.create(name)
        self._commit_all()
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60000)
        self._until_done(lambda: self.admin.request(begin, 4).error_code)

    def close(self) -> None:
        self.admin.close()
        self.subject.close()

    def _client(self, address: str) -> NodeClient:
        client = NodeClient("127.0.0.1", self._port)
        client._socket = socket.create_connection(("127.0.0.1", self._port), source_address=(address, 0))
        client._socket.settimeout(WAIT_S)
        return client

    def _until_done(self, ask: Any) -> None:
        end = time.monotonic() + WAIT_S
        while (code := ask()) != 0:
            assert time.monotonic() < end, code
            time.sleep(0.05)

    def versions(self) -> list[Any]:
        found: list[Any] = self.admin.request(ApiVersionsRequest(), 0).api_keys
        return found

    # -- rights

    def give(self, rights: Iterable[tuple[Right, str]]) -> None:
        """The subject has just these."""
        acls = [
            Acl(right.resource, name, LITERAL, ANONYMOUS, SUBJECT, right.operation, ALLOW) for right, name in rights
        ]
        wanted = DeleteAclsFilter(
            resource_type_filter=ANY, pattern_type_filter=ANY, host_filter=SUBJECT, operation=ANY, permission_type=ANY,
            resource_name_filter=None, principal_filter=None,
        )  # fmt: skip
        self.admin.request(DeleteAclsRequest(filters=[wanted]), 3)
        self._await_acls(SUBJECT, 0)
        self._add(acls)
        self._await_acls(SUBJECT, len(acls))

    def _add(self, acls: Iterable[Acl]) -> None:
        creations = [
            AclCreation(
                resource_type=acl.resource_type, resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
                operation=acl.operation, permission_type=acl.permission,
            )
            for acl in acls
        ]  # fmt: skip
        if creations:
            response = self.admin.request(CreateAclsRequest(creations=creations), 3)
            assert {result.error_code for result in response.results} == {0}, response

    def _await_acls(self, host: str, count: int) -> None:
        """Kafka's broker hears of them a little later."""
        wanted = DescribeAclsRequest(
            resource_type_filter=ANY, pattern_type_filter=ANY, host_filter=host, operation=ANY, permission_type=ANY,
            resource_name_filter=None, principal_filter=None,
        )  # fmt: skip

        def missing() -> int:
            found = self.admin.request(wanted, 3)
            return abs(sum(len(resource.acls) for resource in found.resources) - count)

        self._until_done(missing)

    # -- what requests are about

    def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        self.admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 7)
        self._until_done(lambda: self.topic(name).error_code)

    def remove(self, name: str) -> None:
        self.admin.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=9000), 5)
        self._until_done(lambda: self.topic(name).error_code - 3)

    def topic(self, name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.admin.request(request, 12).topics[0]

    def _commit_all(self) -> None:
        self._until_done(lambda: self.commit("g") or self.commit("h"))

    def commit(self, group: str) -> int:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        response = self.admin.request(OffsetCommitRequest(group_id=group, member_id="", topics=topics), 8)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def prepare(self, case: Case) -> None:
        if case.api == ApiKey.DELETE_TOPICS:
            self.create("victim")
        elif case.api == ApiKey.CREATE_TOPICS:
            self.remove(f"new-{case.version}")
        elif case.api == ApiKey.METADATA and case.label == "creates":
            self.remove(f"made-{case.version}")
        elif case.api in (ApiKey.DELETE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.LIST_GROUPS, ApiKey.OFFSET_DELETE):
            self._commit_all()

    def answer(self, case: Case) -> Any:
        self.prepare(case)
        ids = {name: self.topic(name).topic_id for name in ("t", "victim")}
        request = requests_by_api.requests(case.api, case.version, ids)[case.label]
        response = self.subject.request(request, case.version)
        if case.label == "creates":  # Kafka says of a new topic that it is not there, until it is
            return {topic.error_code for topic in response.topics} & AUTHORIZATION
        return essence(response)


def essence(message: Any) -> Any:
    """The compared part of a message, with lists in one order."""
    if isinstance(message, list):
        return sorted((essence(item) for item in message), key=repr)
    if not hasattr(type(message), "__slots__") or isinstance(message, bytes | str | int):
        return message
    found = {}
    for spec in specs(type(message)):
        name, value = spec.name, getattr(message, spec.name)
        if name in SKIPPED:
            continue
        if name in ONLY_WHETHER:
            found[name] = bool(value)
        elif name.endswith("error_code"):
            found[name] = value if value in AUTHORIZATION else "-"
        elif name.endswith("authorized_operations"):
            found[name] = value
        elif name == "topic_id":
            found[name] = any(value)
        elif spec.wire is None and value is not None:
            found[name] = essence(value)
        elif PRINTED.fullmatch(name):
            found[name] = value
    return found


def rights_of(api: int) -> list[Right]:
    found: list[Right] = []
    for check in RIGHTS[api]:
        found += check.rights if isinstance(check, Special) else [check.right]
    if api in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER):
        found.append(Right(Operation.DESCRIBE, ResourceType.CLUSTER))
    return list(dict.fromkeys(found))


def sets_of(rights: list[Right]) -> Iterator[frozenset[tuple[Right, str]]]:
    def everywhere(some: Iterable[Right]) -> frozenset[tuple[Right, str]]:
        return frozenset((r, CLUSTER_NAME if r.resource is ResourceType.CLUSTER else "*") for r in some)

    yield frozenset()
    for right in rights:
        yield everywhere([right])
        yield everywhere(other for other in rights if other != right)
    yield everywhere(rights)
    narrow = everywhere(right for right in rights if right.resource is not ResourceType.TOPIC)
    yield narrow | {(right, "t") for right in rights if right.resource is ResourceType.TOPIC}
    yield frozenset({(right, "g") for right in rights if right.resource is ResourceType.GROUP})


def cases(kafka: Side, *, only_newest: bool) -> list[Case]:
    """All cases in the versions that Apache Kafka serves, too."""
    found = []
    served = {api.api_key: (api.min_version, api.max_version) for api in kafka.versions()}
    for api, row in sorted(HANDLERS.items()):
        if api in NOT_ASKED:
            continue
        first, last = max(row.min_version, served[api][0]), min(row.max_version, served[api][1])
        if api == ApiKey.PRODUCE:
            first = 3  # Kafka says that it serves older ones, for a client that looks, and does not
        for version in range(last if only_newest else first, last + 1):
            labels = requests_by_api.requests(api, version, {})
            for rights in dict.fromkeys(sets_of(rights_of(api))):
                found += [Case(api, version, label, rights) for label in labels if (api, label) not in BETTER]
    return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    path: Path = tmp_path_factory.mktemp("refusals")
    with (
        apache_kafka(path / "kafka", CONFIG) as kafka,
        BrokerProcess(path / "klamm", CONFIG) as klamm,
        closing(Side(kafka.port)) as first,
        closing(Side(klamm.port)) as second,
    ):
        first.begin()
        second.begin()
        yield first, second


def differences(sides: tuple[Side, Side], wanted: Iterable[Case]) -> Iterator[str]:
    kafka, klamm = sides
    for case in wanted:
        for side in sides:
            side.give(case.rights)
        expected, found = kafka.answer(case), klamm.answer(case)
        if expected != found:
            yield f"{case}\n  Kafka {expected}\n  Klamm {found}"


def test_a_sample_of_refusals(sides: tuple[Side, Side]) -> None:
    seed = int(os.environ.get("KLAMM_SEED") or random.SystemRandom().randrange(2**31))
    print(f"KLAMM_SEED={seed}")
    newest = cases(sides[0], only_newest=True)
    assert list(differences(sides, random.Random(seed).sample(newest, SAMPLE))) == []


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_every_refusal(sides: tuple[Side, Side]) -> None:
    assert list(differences(sides, cases(sides[0], only_newest=False))) == []
