"""The decision of Kafka's StandardAuthorizer: may a principal, from a host, do this to that resource?

1. A super user may do everything.
2. The ACLs *on the resource* are those of its type that are LITERAL with its name or `*`, or PREFIXED with a name that
   its name begins with.
3. An ACL hits when its principal is the one that asks or `User:*`, its host fits, and its operation is ALL or the one
   asked for; an ALLOW of READ, WRITE, DELETE or ALTER is one of DESCRIBE, too, one of ALTER_CONFIGS one of
   DESCRIBE_CONFIGS.
4. A DENY that hits denies. Else an ALLOW that hits allows. Else it is denied, unless there is no ACL on the resource at
   all, of whatever principal, and `allow.everyone.if.no.acl.found` is set.

An operation is a bit (1 << its code), and the ACLs of a pattern and a principal are kept as two sets of bits, what they
deny and what they allow. A question takes a look-up for the name, one for `*`, and one for each length that prefixes
have, however many ACLs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from klamm.broker.security.authorizer.acls import ANYBODY, WILDCARD, Acl
from klamm.broker.security.authorizer.codes import Operation, PatternType, Permission, ResourceType
from klamm.broker.security.authorizer.hosts import ANY_HOST, Cidr, canonical, numeric, range_of

EVERYTHING = -1  # all bits
DESCRIBE = 1 << Operation.DESCRIBE
IMPLIED: Mapping[int, int] = {
    Operation.READ: DESCRIBE,
    Operation.WRITE: DESCRIBE,
    Operation.DELETE: DESCRIBE,
    Operation.ALTER: DESCRIBE,
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}
INVENTED_NAME = "hardcode"  # by type, Kafka asks in the end for a resource of this name


class Rules:
    """The ACLs that one pattern has for one principal, as what they deny and allow from any host and from some."""

    __slots__ = ("acls", "allow", "by_host", "deny", "ranges")

    def __init__(self) -> None:
        self.acls: dict[Acl, None] = {}
        self.deny = 0
        self.allow = 0
        self.by_host: dict[str, tuple[int, int]] = {}
        self.ranges: list[tuple[Cidr, int, int]] = []

    def settle(self) -> None:
        """Compute the bits from the ACLs."""
        self.deny = self.allow = 0
        self.by_host, self.ranges = {}, []
        for acl in self.acls:
            deny, allow = _bits(acl)
            host = canonical(acl.host)
            if host == ANY_HOST:
                self.deny |= deny
                self.allow |= allow
            elif "/" in host:
                if (cidr := range_of(host)) is not None:
                    self.ranges.append((cidr, deny, allow))
            else:
                before = self.by_host.get(host, (0, 0))
                self.by_host[host] = before[0] | deny, before[1] | allow

    def from_host(self, host: str) -> tuple[int, int]:
        """What the ACLs with hosts deny and allow from this one."""
        deny, allow = self.by_host.get(host, (0, 0))
        if self.ranges:
            bits, address = numeric(host)
            for cidr, denied, allowed in self.ranges:
                if cidr.contains(bits, address):
                    deny |= denied
                    allow |= allowed
        return deny, allow


Pattern = dict[str, Rules]
"""The rules of one pattern, by principal."""


class Resources:
    """The ACLs of one resource type."""

    __slots__ = ("_counts", "by_principal", "lengths", "literal", "prefixed", "star")

    def __init__(self) -> None:
        self.literal: dict[str, Pattern] = {}
        self.star: Pattern = {}
        self.prefixed: dict[str, Pattern] = {}
        self.lengths: list[int] = []  # of the prefixes, in ascending order
        self._counts: Counter[int] = Counter()
        self.by_principal: dict[str, dict[Acl, None]] = {}

    def add(self, acl: Acl) -> Rules:
        """Add an ACL; returns the rules that are to be settled."""
        self.by_principal.setdefault(acl.principal, {})[acl] = None
        pattern = self._pattern(acl)
        if acl.pattern_type == PatternType.PREFIXED and not pattern:
            self._count(acl, 1)
        rules = pattern.get(acl.principal)
        if rules is None:
            rules = pattern[acl.principal] = Rules()
        rules.acls[acl] = None
        return rules

    def remove(self, acl: Acl) -> Rules:
        pattern = self._pattern(acl)
        rules = pattern[acl.principal]
        del rules.acls[acl]
        if not rules.acls:
            del pattern[acl.principal]
        if not pattern:
            self._forget(acl)
        of_principal = self.by_principal[acl.principal]
        del of_principal[acl]
        if not of_principal:
            del self.by_principal[acl.principal]
        return rules

    def on(self, name: str) -> list[Pattern]:
        """The patterns on the resource of this name."""
        found = [self.star] if self.star else []
        if (pattern := self.literal.get(name)) is not None:
            found.append(pattern)
        for length in self.lengths:
            if length > len(name):
                break
            if (pattern := self.prefixed.get(name[:length])) is not None:
                found.append(pattern)
        return found

    def _pattern(self, acl: Acl) -> Pattern:
        if acl.pattern_type == PatternType.PREFIXED:
            return self.prefixed.setdefault(acl.resource_name, {})
        if acl.resource_name == WILDCARD:
            return self.star
        return self.literal.setdefault(acl.resource_name, {})

    def _forget(self, acl: Acl) -> None:
        if acl.pattern_type == PatternType.PREFIXED:
            del self.prefixed[acl.resource_name]
            self._count(acl, -1)
        elif acl.resource_name != WILDCARD:
            del self.literal[acl.resource_name]

    def _count(self, acl: Acl, change: int) -> None:
        self._counts[len(acl.resource_name)] += change
        self.lengths = sorted(+self._counts)


class StandardAuthorizer:
    """See the head of the module. Principals are texts of the form `Type:name`."""

    __slots__ = ("_allow_everyone", "_resources", "_super_users")

    def __init__(
        self, acls: Iterable[Acl] = (), *, super_users: Iterable[str] = (), allow_everyone_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone_if_no_acl
        self._resources: dict[int, Resources] = {kind: Resources() for kind in ResourceType}
        self.change(added=acls)

    def change(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Take ACLs away that are there, and add others that are not."""
        changed = [self._resources[acl.resource_type].remove(acl) for acl in removed]
        changed += [self._resources.setdefault(acl.resource_type, Resources()).add(acl) for acl in added]
        for rules in {id(rules): rules for rules in changed}.values():
            rules.settle()

    def change_to(self, old: Mapping[bytes, Acl], new: Mapping[bytes, Acl]) -> None:
        """Go from the ACLs of one metadata image to those of the next."""
        self.change(
            added=[new[acl_id] for acl_id in new.keys() - old.keys()],
            removed=[old[acl_id] for acl_id in old.keys() - new.keys()],
        )

    def is_super(self, principal: str) -> bool:
        return principal in self._super_users

    # -- decisions ----------------------------------------------------------------------------------------------

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Decide one question. The host is an address in its `canonical` spelling."""
        return bool(self.allowed(principal, host, resource_type, name) >> operation & 1)

    def allowed(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The bits of all operations that are allowed on one resource."""
        if principal in self._super_users:
            return EVERYTHING
        patterns = self._resources[resource_type].on(name)
        if not patterns and self._allow_everyone:
            return EVERYTHING
        deny = allow = 0
        for pattern in patterns:
            for who in (principal, ANYBODY):
                rules = pattern.get(who)
                if rules is not None:
                    deny |= rules.deny
                    allow |= rules.allow
                    if rules.by_host or rules.ranges:
                        denied, allowed = rules.from_host(host)
                        deny |= denied
                        allow |= allowed
        return allow & ~deny

    def allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Decide whether the operation is allowed on some resource of the type. One operation does not imply another
        here."""
        if principal in self._super_users:
            return True
        hits = list(self._hits(principal, host, operation, resource_type))
        denied = {(acl.pattern_type, acl.resource_name) for acl in hits if acl.permission == Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        for acl in hits:
            if acl.permission == Permission.ALLOW and not _is_covered(acl, denied):
                return True
        return self.allows(principal, host, operation, resource_type, INVENTED_NAME)

    def _hits(self, principal: str, host: str, operation: int, resource_type: int) -> Iterator[Acl]:
        by_principal = self._resources[resource_type].by_principal
        for who in (principal, ANYBODY):
            for acl in by_principal.get(who, ()):
                if acl.operation in (operation, Operation.ALL) and _fits(acl.host, host):
                    yield acl

    def rule(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> str:
        """What a decision is based on, in Kafka's words, for the audit log."""
        if principal in self._super_users:
            return "SuperUser"
        patterns = self._resources[resource_type].on(name)
        acls = [
            acl
            for pattern in patterns
            for who in (principal, ANYBODY)
            if who in pattern
            for acl in pattern[who].acls
            if _fits(acl.host, host) and (_bits(acl)[0] | _bits(acl)[1]) >> operation & 1
        ]
        if acls:
            return f"MatchingAcl(acl={min(acls, key=lambda acl: acl.permission)})"
        return "DefaultAllow" if not patterns and self._allow_everyone else "DefaultDeny"


def _bits(acl: Acl) -> tuple[int, int]:
    """The operations that an ACL denies, and those that it allows."""
    bits = EVERYTHING if acl.operation == Operation.ALL else 1 << acl.operation
    if acl.permission == Permission.DENY:
        return bits, 0
    return 0, bits | IMPLIED.get(acl.operation, 0)


def _fits(pattern: str, host: str) -> bool:
    if pattern == ANY_HOST:
        return True
    if "/" in pattern:
        cidr = range_of(pattern)
        return cidr is not None and cidr.contains(*numeric(host))
    return canonical(pattern) == host


def _is_covered(acl: Acl, denied: set[tuple[int, str]]) -> bool:
    """Whether the ACL allows only what others deny."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def parse_super_users(text: str | None) -> frozenset[str]:
    """The principals in `super.users`, separated by semicolons. Raises ValueError for one that is not `Type:name`."""
    found = [part.strip() for part in (text or "").split(";")]
    for principal in found:
        if principal and ":" not in principal:
            raise ValueError(f"{principal!r} is not of the form Type:name")
    return frozenset(principal for principal in found if principal)
