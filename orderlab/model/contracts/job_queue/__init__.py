"""The contract of job queues: `contract` what each call may do, `promises` states and promises, `laws`, `workload`."""
