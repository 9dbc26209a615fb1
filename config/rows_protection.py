"""Broker keys that keep secrets and files from other users of the machine, and strangers from the metrics.

One row per key, as in `rows_server`.
"""

from __future__ import annotations

from klamm.config.definitions import ConfigKey, Type
from klamm.config.validators import NotEmpty, OneOf, Words

K = ConfigKey
BOOLEAN, STRING, LIST = Type.BOOLEAN, Type.STRING, Type.LIST

PROTECTION = (
    K("config.providers", LIST, [], "Names of config providers, which fill `${name:path:key}` in values of this file, "
      "the environment and overrides. `config.providers.<name>.class` is Kafka's FileConfigProvider, "
      "DirectoryConfigProvider or EnvVarConfigProvider; `.param.allowed.paths` and `.param.allowlist.pattern` bound "
      "them. Values set at run time are never filled.", Words(), importance="low"),
    K("klamm.data.mode", STRING, "private", "The users that may read new files of the log directories: `private` is "
      "the broker's user alone (0600, 0700), `group` the group of each log directory, too (0640, 2750), as for Spark "
      "that reads segments as another user. The metadata store and key files are private in any case.",
      OneOf(("private", "group")), importance="high"),
    K("klamm.data.mode.check", STRING, "warn", "The reaction at start to a log directory that more users may read or "
      "write than klamm.data.mode says: `warn`, or `refuse` to start.", OneOf(("warn", "refuse"))),
    K("klamm.core.dumps", BOOLEAN, False, "Let the system write the memory of a crashed broker to a file. The memory "
      "has keys and passwords."),
    K("klamm.secret.key.file", STRING, None, "A file with the key that encrypts passwords which are set at run time "
      "(AES-256-GCM) in the metadata store; made with mode 0600 when the first one is set. To change the key, put a "
      "new line before the old one: `klamm secrets new-key` does it. Without this key such passwords are refused.",
      NotEmpty()),
    K("klamm.security.strict", BOOLEAN, False, "Refuse to start where there would only be a warning: a PLAINTEXT "
      "listener or metrics without authentication off the loopback, an authorizer without super.users, "
      "allow.everyone.if.no.acl.found, data that others may read.", importance="high"),
    K("klamm.metrics.auth", STRING, "none", "The login that /metrics needs: `none`, `basic:FILE` a user of that "
      "file (a line `name:hash` each, which `klamm secrets hash-password` prints), `bearer:FILE` the bearer of a token "
      "in it (one each line). The file belongs to the broker's user with mode 0600. /healthz and /readyz are open to "
      "all.",
      NotEmpty()),
)  # fmt: skip

ROWS = (*PROTECTION,)
