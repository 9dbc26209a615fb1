"""`klamm-pipeline vacuum`: delete files that no version within the retention needs.

    klamm-pipeline vacuum --table /warehouse/topics                     # lists them, deletes nothing
    klamm-pipeline vacuum --table /warehouse/topics --delete

These are files of runs that were killed before their commit, and files that a rerun, a compaction or an optimisation
has replaced, once they are older than the retention (by default the table's own, a week). Versions that need a deleted
file can no longer be read. A job that takes longer than the retention loses its files to a vacuum. So a retention below
that of the table needs --short-retention, and no job may run meanwhile.
"""

from __future__ import annotations

import argparse
from typing import Any

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import BadOption, PipelineError
from klamm.pipeline.jobs.arguments import add_table_arguments, location
from klamm.pipeline.report import Report, add_report_arguments, reporting

NAME = "vacuum"


def declare(parser: argparse.ArgumentParser) -> None:
    add_table_arguments(parser)
    group = parser.add_argument_group("what to delete")
    group.add_argument("--retention-hours", metavar="N", type=int, help="keep younger files (default: the table's)")
    group.add_argument("--short-retention", action="store_true", help="allow less than the table's own retention")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--delete", action="store_true", help="delete; without it the files are only listed")
    mode.add_argument("--dry-run", action="store_true", help="only list them (the default)")
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.table import Table
    from klamm.pipeline.table.table import first_line

    if options.retention_hours is not None and options.retention_hours < 0:
        raise BadOption(f"--retention-hours {options.retention_hours}: it is a number of hours, 0 or more")
    table = Table.open(location(options))
    given: dict[str, Any] = {
        "retention_hours": options.retention_hours,
        "enforce_retention_duration": not options.short_retention,
        "full": True,
    }
    try:
        paths = sorted(table.delta.vacuum(dry_run=not options.delete, **given))
    except Exception as error:
        if "retention" in str(error).lower():
            raise BadOption(
                f"--retention-hours {options.retention_hours}: {first_line(error)} (--short-retention allows it)"
            ) from None
        raise PipelineError(f"{table.location}: {first_line(error)}") from None
    for path in paths:
        print(path)
    done = "deleted" if options.delete else "to be deleted (--delete does it)"
    report.event("vacuum", files=len(paths), state=done)
    return EXIT_OK
