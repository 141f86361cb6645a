"""ACLs for a broker that is measured: the client may do everything, and there are many other rules."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)


def create(port: int, count: int) -> None:
    """Let the anonymous client do everything, and make so many rules for topics and groups of others."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    own = [
        _acl(kind, "*", ResourcePatternType.LITERAL, "User:ANONYMOUS")
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]
    own.append(_acl(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:ANONYMOUS"))
    _store(admin, own)
    others = []
    for number in range(count - len(own)):
        kind = ResourceType.TOPIC if number % 2 else ResourceType.GROUP
        pattern = ResourcePatternType.PREFIXED if number % 3 else ResourcePatternType.LITERAL
        others.append(_acl(kind, f"team-{number}", pattern, f"User:team-{number}"))
    _store(admin, others)


def _acl(kind: ResourceType, name: str, pattern: ResourcePatternType, user: str) -> AclBinding:
    return AclBinding(kind, name, pattern, user, "*", AclOperation.ALL, AclPermissionType.ALLOW)


def _store(admin: AdminClient, acls: list[AclBinding]) -> None:
    for stored in admin.create_acls(acls).values():
        stored.result(60)
