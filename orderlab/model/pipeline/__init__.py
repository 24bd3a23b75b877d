"""The delivery pipeline as a small system of processes, from the publisher through Kafka and Redis to the subscriber.

One publisher, one topic, one persistent subscriber, one partition, one or two broker nodes, one Redis master with one
replica. ``Protocol`` says how the nodes behave, ``PipelineScope`` how large the system is and what may go wrong in it.
``system.steps`` gives every next state; ``exploration`` says what must hold in each.
"""
