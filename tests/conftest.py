"""What holds for every test: a skip is a failure, and Hypothesis neither hurries nor remembers."""

from __future__ import annotations

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "klamm",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # how fast examples are made is the machine's business
)
hypothesis.settings.load_profile("klamm")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """A test that did not run has shown nothing."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and a skip is a failure here: {report.longrepr}"
    return report
