"""The link between jobs and Spark: the session, its tasks, the data source."""
