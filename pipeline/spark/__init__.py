"""What ties the jobs to Spark: the session, its tasks, columns of Arrow, the data source."""
