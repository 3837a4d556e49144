"""Records of a running adaptation: an event log, and metrics for Prometheus.

This package knows outcomes and files but no method and no model, so that a program that only
reads a log (a page, a report) needs neither. The loop in `dasp.methods` writes them;
docs/operation.md describes their use. A failure to write never costs a prediction: it is counted
and logged once.
"""
