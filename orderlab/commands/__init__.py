"""One file per command of the command line; here, their table."""

PROGRAM = "orderlab"
SUMMARIES = {
    "init": "Draft a store.toml for a folder of scripts, or of programs that hold them, with its gaps marked.",
    "validate": "Judge stores by their laws: footprint, every interleaving of small scopes, random runs.",
    "certify": "Check the certificate of a closed scope, step by step and without a search.",
    "binding": "Show what a binding sends and reads for a call of each operation; the JSON Schema of store.toml.",
    "lint": "Look for mistakes in the text of scripts: Lua files, stores, strings of programs.",
    "cost": "Say what each operation costs as a function of length, batch and payload, and hold it against a budget.",
    "race": "Run client code in every order of its Redis commands, and judge what comes of it.",
    "specimens": "Is every flawed store caught by the laws that it breaks, and does its neighbour pass them?",
    "compare": "Put stores and systems side by side: laws, costs, faults, on one workload.",
    "mutate": "Make mutants of a store's scripts and validate each: what does a green validation miss?",
    "replay": "Take the steps of a trace again and judge each.",
    "explore": "Visit every state of a specification: laws, goals, liveness, deadlock, coverage.",
    "simulate": "Simulate a broker system: throughput, latency, utilisation, and the verdict of every law.",
    "calibrate": "Measure what commands cost on a Redis server, and write a cost model of it.",
    "check": "Judge a recorded history, or a linearizability log, by every law that it can be judged by.",
    "record": "Record a real MQTT broker under faults, as a history that check judges.",
    "sweep": "Run a sweep file on Spark: thousands of simulations, resumed where they were stopped.",
    "runs": "Look at the runs of a sweep: filter, sort, query and export their rows, do one again.",
    "serve": "Serve a simulated Redis node to real clients of any language, on loopback.",
    "explain": "Say what a law, a rule of lint, an exit code or a word means.",
    "docs": "Show a page of the documentation, or list the pages.",
    "bench": "Measure this project beside its peers, in one run on this machine.",
}
"""What the list of commands says. Each command is the function of that name in its module here."""
COMMANDS = tuple(SUMMARIES)
