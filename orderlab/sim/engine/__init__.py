"""What every simulation is made of: stations, network, random streams, recorder, statistics."""
