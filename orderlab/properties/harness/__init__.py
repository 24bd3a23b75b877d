"""Runs the steps of a trace on a store and holds each against the contract."""
