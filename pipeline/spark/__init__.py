"""What ties the jobs to Spark: the session, its tasks, the data source."""
