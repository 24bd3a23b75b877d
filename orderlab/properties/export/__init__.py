"""A recorded trace in forms that others read and run: a pytest file, a redis-cli script, diagrams, a listing of
states."""
