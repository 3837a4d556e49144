"""What a running adaptation leaves behind: an event log, and counters to be scraped.

This room knows outcomes and files, no method and no model, so that whatever only reads a log (a
page, a report) needs neither. The loop in `dasp.methods` writes; docs/operation.md says how to use
it. Nothing here may cost a prediction: what cannot be written is counted, and said once.
"""
