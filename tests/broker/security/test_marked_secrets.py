"""Row 60: secrets with a mark, everything logged at DEBUG; the mark is in no output."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError
from klamm.client.sasl import Credentials
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

pytestmark = pytest.mark.clients

MARK = "mArKeD-sEcReT"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice"


def test_security_row_60_no_mark_in_any_output(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text(f'jaas={JAAS}="{MARK}1";\n')
    config = tmp_path / "server.properties"
    config.write_text(
        "\n".join(
            (
                f"log.dirs={tmp_path}/data",
                "listeners=SASL_PLAINTEXT://127.0.0.1:0",
                "klamm.metrics.listener=127.0.0.1:0",
                "sasl.enabled.mechanisms=PLAIN",
                "config.providers=file",
                "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
                f"listener.name.sasl_plaintext.plain.sasl.jaas.config=${{file:{tmp_path}/secrets.properties:jaas}}",
                f"delegation.token.secret.key={MARK}2",
                f"klamm.secret.key.file={tmp_path}/key",
                f"some.unknown.key={MARK}3",
            )
        )
    )
    command = [sys.executable, "-m", "klamm", "start", str(config), "--log-level", "debug"]
    environ = {**os.environ, "KAFKA_SSL_KEY_PASSWORD": MARK + "4"}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        assert ready.startswith("klamm ready"), (tmp_path / "log").read_text()
        port, metrics = int(ready.split("listeners=")[1].split()[0].rpartition(":")[2]), ready.split("metrics=")[1]
        seen = [ready, Path(f"/proc/{process.pid}/cmdline").read_text(), *ask(port)]
        with urllib.request.urlopen(metrics.strip()) as response:
            seen.append(response.read().decode())
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
    seen.append((tmp_path / "log").read_text())
    seen.append((tmp_path / "data" / "klamm-metadata.db").read_bytes().decode("latin-1"))
    assert "DEBUG" in seen[-2]
    assert [text[max(text.find(MARK) - 80, 0) : text.find(MARK) + 20] for text in seen if MARK in text] == []


def ask(port: int) -> list[str]:
    """Log in, wrongly and rightly, and ask for what might show a secret; the texts of all answers."""
    texts = []
    with (
        pytest.raises(ClientError) as caught,
        NodeClient("127.0.0.1", port, credentials=Credentials("PLAIN", "alice", MARK + "5")) as client,
    ):
        client.connect()
    texts.append(str(caught.value))
    with NodeClient("127.0.0.1", port, credentials=Credentials("PLAIN", "alice", MARK + "1")) as client:
        name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        for key, value in ((name, f"{JAAS}={MARK}6;"),):
            change = AlterableConfig(name=key, config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            texts.append(repr(client.request(request)))
        wanted = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        texts.append(repr(client.request(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))))
        texts.append(repr(client.request(RenewDelegationTokenRequest(hmac=MARK.encode(), renew_period_ms=1))))
    return texts
