"""The passwords among dynamic broker configs: clear in the image, encrypted in the store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.store import MetadataStore, Operation, Set, StoreCorrupt
from klamm.broker.security.secret_box import SecretBox, Unsealable

if TYPE_CHECKING:
    from klamm.broker.metadata.image import MetadataImage
    from klamm.config import BrokerConfig

log = logging.getLogger(__name__)


def secret_box(config: BrokerConfig) -> SecretBox:
    """The box under the key file of this config."""
    path = config["klamm.secret.key.file"]
    return SecretBox(Path(str(path)) if path is not None else None)


def opened(store: MetadataStore, image: MetadataImage, box: SecretBox) -> MetadataImage:
    """The image with every password readable. Those under an old key are stored again under the new one.

    Blocks. Raises StoreCorrupt when one cannot be read.
    """
    changed, operations = _opened(image, box)
    if operations:
        store.multi(operations)
        log.info("passwords of %d broker config(s) are encrypted under the newest key now", len(operations))
    return image.with_broker_configs(changed) if changed else image


def readable(image: MetadataImage, box: SecretBox) -> MetadataImage:
    """The image with every password readable; nothing is stored. Raises StoreCorrupt."""
    changed, _ = _opened(image, box)
    return image.with_broker_configs(changed) if changed else image


def _opened(image: MetadataImage, box: SecretBox) -> tuple[dict[str, dict[str, str]], list[Operation]]:
    changed: dict[str, dict[str, str]] = {}
    operations: list[Operation] = []
    for name, stored in image.broker_configs.items():
        try:
            clear = box.opened(name, stored)
            if clear == stored:
                continue
            changed[name] = clear
            if not box.is_current(stored):
                operations.append(Set(paths.broker_config(name), codec.config_value(box.sealed(name, clear))))
        except Unsealable as error:
            raise StoreCorrupt(f"{paths.broker_config(name)}: {error}") from None
    return changed, operations
