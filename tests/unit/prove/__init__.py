"""Tests of the proof itself: what judges the others must be judged first."""
