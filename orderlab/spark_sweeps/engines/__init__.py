"""Where chunks of runs are executed: on Spark, or in processes of this machine."""
