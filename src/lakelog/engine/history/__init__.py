"""The history of groups: samples of their figures."""
