"""Delta tables of topics: their location, their files, and commits that include the next offsets.

`Location` is a path or URL, `Table` a Delta table with its offsets, `Change` the content of one commit, and
`FilesWriter` the writer in tasks. `reading` shows how to read such a table with Spark, DuckDB and Arrow.
"""

from klamm.pipeline.table.files import DataFile, FilesWriter
from klamm.pipeline.table.location import Location
from klamm.pipeline.table.log import Commit
from klamm.pipeline.table.reading import dataframe, files
from klamm.pipeline.table.table import Change, Table

__all__ = ["Change", "Commit", "DataFile", "FilesWriter", "Location", "Table", "dataframe", "files"]
