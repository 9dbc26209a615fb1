"""The subcommands of `klamm-pipeline`; see `klamm.pipeline.cli` for what such a module has."""
