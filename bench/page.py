"""Write docs/performance.md, one section per suite, each from the run that measured it; and the plot of the ratios.

A section is between two comments that name it; everything else on the page is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.measure import Table

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PLOT = PAGE.with_suffix(".svg")


def write_section(name: str, body: str, page: Path = PAGE) -> None:
    """Replace the text between the comments of a section, or append the section."""
    begin, end = f"<!-- {name}: written by `make bench SUITE={name}` -->", f"<!-- end of {name} -->"
    section = f"{begin}\n\n{body.strip()}\n\n{end}"
    text = page.read_text() if page.exists() else "# Performance\n"
    found = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if found.search(text):
        text = found.sub(lambda _: section, text)
    else:
        text = text.rstrip() + f"\n\n{section}\n"
    page.write_text(text)


def plot(table: Table, title: str, path: Path = PLOT) -> None:
    """Draw a bar per ratio; longer is better for Klamm: throughput as it is, costs and times inverted."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "klamm"
    bars = []
    for row in table.cells:
        for figure, (ratio, low, high) in table.ratios(row).items():
            if figure in BETTER and low > 0:
                less = not figure.endswith("_s") or figure == "cpu_s"
                ends = (1 / ratio, 1 / high, 1 / low) if less else (ratio, low, high)
                bars.append((f"{row}: {BETTER[figure]}", *ends))
    bars.reverse()
    _, axes = plt.subplots(figsize=(10, 0.24 * len(bars) + 1.2), layout="constrained")
    values = [ratio for _, ratio, _, _ in bars]
    errors = [[ratio - low for _, ratio, low, _ in bars], [high - ratio for _, ratio, _, high in bars]]
    colours = ["#2a7f62" if value >= 1 else "#b5532a" for value in values]
    axes.barh([name for name, *_ in bars], values, xerr=errors, color=colours, error_kw={"elinewidth": 0.8})
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as good as Apache Kafka (log scale)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="y", labelsize=7)
    plt.savefig(path, metadata={"Date": None})


BETTER = {
    "records_s": "records/s",
    "requests_s": "requests/s",
    "transactions_s": "transactions/s",
    "gb_s": "GB/s",
    "mb_s": "MB/s",
    "look_ups_s": "look-ups/s",
    "cpu_s": "CPU",
    "cpu_us": "CPU",
    "cpu_s_gb": "CPU",
    "p50_us": "p50",
    "p99_us": "p99",
    "average_us": "average",
    "seconds": "time",
    "ms": "time",
    "mb": "memory",
}
"""The figures in the plot, and their labels."""
