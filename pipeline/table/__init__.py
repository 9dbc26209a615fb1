"""Delta tables of topics: where they are, their files, and commits that have the next offsets in them.

`Location` is a path or URL, `Table` a Delta table with its offsets, `Change` what one commit does, and `FilesWriter`
what tasks write with. `reading` has how such a table is read with Spark, DuckDB and Arrow.
"""

from klamm.pipeline.table.files import DataFile, FilesWriter
from klamm.pipeline.table.location import Location
from klamm.pipeline.table.log import Commit
from klamm.pipeline.table.reading import dataframe, files
from klamm.pipeline.table.table import Change, Table

__all__ = ["Change", "Commit", "DataFile", "FilesWriter", "Location", "Table", "dataframe", "files"]
