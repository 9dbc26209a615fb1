"""Snapshots of topics in a directory of their own, and bringing them back: `klamm snapshot`, `klamm restore`.

    <snapshot>/
      klamm-snapshot.json           written last: what is here; without it the snapshot is not whole
      <topic>-<partition>/          a clean prefix of each partition (`storage/copies/backup.py`)

`taking` reads the metadata store and the log dirs, of a running broker too; `restoring` needs a stopped one.
"""
