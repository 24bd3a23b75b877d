"""The contract of job queues: `contract` what each call may do, `words` states and promises, `laws`, `workload`."""
