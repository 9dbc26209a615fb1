"""The authorizer that the config asks for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm.broker.security.authorizer.standard import StandardAuthorizer, parse_super_users

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)


def authorizer_of(config: BrokerConfig) -> StandardAuthorizer:
    """An authorizer without ACLs. Warns of settings that leave a door open, or nobody with a key."""
    super_users = parse_super_users(config.text("super.users") if config["super.users"] is not None else None)
    everyone = config.flag("allow.everyone.if.no.acl.found")
    if not super_users:
        log.warning("an authorizer is on, and super.users is empty: only ACLs that are there already let anybody in")
    if everyone:
        log.warning("allow.everyone.if.no.acl.found=true: a resource that no ACL is about is open to everybody")
    return StandardAuthorizer(super_users=super_users, allow_everyone_if_no_acl=everyone)
