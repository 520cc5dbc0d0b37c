"""Tests of the proof itself, so that its verdicts can be trusted."""
