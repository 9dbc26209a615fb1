"""The quotas of clients in the metrics: how often and how long clients were throttled, and the rates that are measured.

Kafka's names are kept in the labels: the kind of quota, the user and the client id that share a measure. Names are
chosen by clients: they are cut, and no more than `MOST_SERIES` of each kind are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from klamm.broker.metrics.recording import escape
from klamm.broker.quotas.entities import FETCH, PRODUCE, REQUEST

if TYPE_CHECKING:
    from klamm.broker.metrics.recording import Metrics, Sample
    from klamm.broker.quotas.client_quotas import ClientQuotas

MOST_SERIES: Final = 1000
MOST_CHARACTERS: Final = 100
PERCENT: Final = 100


def expose(metrics: Metrics, quotas: Callable[[], ClientQuotas | None]) -> None:
    """`quotas` gives None as long as there were none."""

    def shown(samples: Callable[[ClientQuotas], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]:
        def now() -> Iterator[Sample]:
            known = quotas()
            return samples(known) if known is not None else iter(())

        return now

    metrics.counters("klamm_quota_throttled_requests_total", "Requests that throttled their client.", shown(_counts))
    metrics.counters(
        "klamm_quota_throttle_seconds_total", "Sum of the times that clients were throttled.", shown(_seconds)
    )
    metrics.gauges("klamm_quota_rate", "Bytes, or percent of one thread, per second, as quotas measure.", shown(_rates))


def _counts(quotas: ClientQuotas) -> Iterator[Sample]:
    for kind, count in quotas.throttled_count.items():
        yield f'{{quota="{kind}"}}', count


def _seconds(quotas: ClientQuotas) -> Iterator[Sample]:
    for kind, throttle_ms in quotas.throttled_ms.items():
        yield f'{{quota="{kind}"}}', throttle_ms / 1000


def _rates(quotas: ClientQuotas) -> Iterator[Sample]:
    now_s = quotas.now()
    for kind, sensors, factor in (
        (PRODUCE, quotas.produce, 1),
        (FETCH, quotas.fetch, 1),
        (REQUEST, quotas.request, PERCENT),
    ):
        for (user, client_id), sensor in islice(sensors.items(), MOST_SERIES):
            labels = f'quota="{kind}",user="{_name(user)}",client_id="{_name(client_id)}"'
            yield f"{{{labels}}}", sensor.per_second(now_s) * factor


def _name(name: str | None) -> str:
    return escape((name or "")[:MOST_CHARACTERS])
